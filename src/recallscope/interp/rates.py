"""What a gated memory or a delta rule does at each kind of pair: how much it writes, erases and keeps.

A pair is a token and the one before it. Only (key, value) pairs are facts; a trained gate shuts at the others.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from recallscope.architectures.capabilities import HasRates
from recallscope.architectures.model import RecallModel
from recallscope.specs import TaskSpec
from recallscope.tasks.batch import Batch
from recallscope.theory.laws.ageing import delta_rate
from recallscope.theory.problem import Problem

PAIRS = ("key, value", "value, key", "key, key", "value, value")


def pair_kinds(tokens: Int[Tensor, "batch L"], vocab_size: int) -> dict[str, Bool[Tensor, "batch L"]]:
    """Where each kind of pair ends. The first token ends none; token 0, which fills gaps, counts as a key."""
    value = tokens >= vocab_size // 2
    before, now = value[:, :-1], value[:, 1:]
    ends = torch.zeros_like(value)
    found = {}
    for name, kind in zip(PAIRS, (~before & now, before & ~now, ~before & ~now, before & now), strict=True):
        found[name] = ends.clone()
        found[name][:, 1:] = kind
    return found


@dataclass(frozen=True)
class PairRates:
    """Means over the pairs of one kind and over heads; not a number where there are no such pairs."""

    written: float
    """length of the key under which a value is written, gate included"""
    erased: float
    """b of the delta rule"""
    kept: float
    """share of the state that does not fade"""


@dataclass(frozen=True)
class RateScores:
    """Rates by kind of pair, and the rate of a delta rule that theory finds best."""

    pairs: dict[str, PairRates]
    best_rate: float | None
    """b with the highest recall by the law `delta`; None if nothing is erased, or the law does not speak of the task"""


def measure_rates(model: RecallModel, batch: Batch, task: TaskSpec) -> RateScores:
    """What a model of one layer decides, beside what it should."""
    pairs = rates_by_pair(model, batch)
    erases = pairs[PAIRS[0]].erased > 0
    return RateScores(pairs, best_rate(model, task) if erases else None)


def best_rate(model: RecallModel, task: TaskSpec) -> float | None:
    """b* of the law `delta` for the sizes of this model and task; None where that law does not speak about them."""
    fields = {"task": task.kind} | task.model_dump(mode="json") | model.spec.model_dump(mode="json")
    try:
        return float(delta_rate(Problem.from_fields(fields)))
    except ValueError:  # too few fields, say, or a task of another kind
        return None


@torch.no_grad()
def rates_by_pair(model: RecallModel, batch: Batch, *, layer: int = -1) -> dict[str, PairRates]:
    """Rates by kind of pair.   Holds for: any model that decides at every token how much to write, erase and keep."""
    rates = model.require(HasRates).rates(batch.tokens, layer)
    return {
        name: PairRates(*(float(part[where].double().mean()) for part in (rates.written, rates.erased, rates.kept)))
        for name, where in pair_kinds(batch.tokens, model.vocab_size).items()
    }
