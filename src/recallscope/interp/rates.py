"""What a gated memory or a delta rule does at each kind of pair: how much it writes, erases and keeps.

A pair is a token and the one before it. Only (key, value) pairs are facts; a trained gate shuts at the others.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from recallscope.architectures.capabilities import HasRates
from recallscope.architectures.model import RecallModel
from recallscope.tasks import Batch

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


@torch.no_grad()
def measure_rates(model: RecallModel, batch: Batch, *, layer: int = -1) -> dict[str, PairRates]:
    """Rates by kind of pair.   Holds for: any model that decides at every token how much to write, erase and keep."""
    rates = model.require(HasRates).rates(batch.tokens, layer)
    return {
        name: PairRates(*(float(part[where].double().mean()) for part in (rates.written, rates.erased, rates.kept)))
        for name, where in pair_kinds(batch.tokens, model.vocab_size).items()
    }
