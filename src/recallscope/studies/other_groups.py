"""Our laws against accuracies that other groups measured: routed linear attention, and gated linear attention.

The numbers are in `published/`, each file with its source. They were seen before any of the formulas below was written
down, and every variant that was tried is listed, so this is a comparison and not a blind test.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from scipy.stats import binom

from recallscope.studies.chapters.page import table
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.extremes import success_integral
from recallscope.theory.problem import Array

VOCAB_SIZE = 8192  # of zoology's protocol; keys are one half of the vocabulary and values the other
VALUES = VOCAB_SIZE // 2
KEY_DIM, VALUE_DIM = 12, 48  # of a routed memory: per head, and over all four heads
FEW = 16  # routed memories whose keys still fit into the model: 12 * 16 = 192 directions for d_model = 128
Formula = Callable[["Measured"], Array]


@dataclass(frozen=True)
class Measured:
    """Accuracy [setting, number of facts] of one family of models; `size` is its memories, or its width."""

    size: Array
    facts: Array
    accuracy: Array


@dataclass(frozen=True)
class Variant:
    """One formula for the accuracy, and why somebody might expect it."""

    name: str
    reason: str
    formula: Formula


@dataclass(frozen=True)
class Errors:
    """Absolute errors of a variant over some settings."""

    variant: Variant
    settings: int
    mean: float
    largest: float


def read_published(name: str) -> list[dict[str, str]]:
    """The rows of a file in `published/`, without its comments."""
    text = files("recallscope.studies").joinpath("published", name).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def facts_of(row: Mapping[str, str]) -> list[int]:
    """The numbers of facts that a file has columns for: n4, n8, ..."""
    return [int(name[1:]) for name in row if name[0] == "n" and name[1:].isdigit()]


def routed_memories() -> Measured:
    """Routed linear attention: 2 to 256 memories of 12 by 48 entries, 4 to 1,024 facts."""
    rows = read_published("routed_memories.csv")
    return _measured(rows, [float(row["memories"]) for row in rows])


def gated_linear_attention() -> Measured:
    """GLA as published, two heads: of each width the learning rate with the best mean accuracy."""
    rows = [row for row in read_published("zoology_protocol.csv") if row["model"] == "gla"]
    best: dict[str, dict[str, str]] = {}
    for row in rows:
        if row["d_model"] not in best or _mean(row) > _mean(best[row["d_model"]]):
            best[row["d_model"]] = row
    return _measured(list(best.values()), [float(width) for width in best])


def _mean(row: Mapping[str, str]) -> float:
    return float(np.mean([float(row[f"n{n}"]) for n in facts_of(row)]))


def _measured(rows: Sequence[Mapping[str, str]], sizes: Sequence[float]) -> Measured:
    facts = facts_of(rows[0])
    accuracy = np.array([[float(row[f"n{n}"]) for n in facts] for row in rows])
    return Measured(np.array(sizes)[:, None], np.array(facts, float)[None, :], accuracy)


def _routed(pairs: Callable[[Array], Array], competitors: int, entries: int = KEY_DIM * VALUE_DIM) -> Formula:
    """SNR² = memories * entries / pairs: every entry of every memory holds facts alike."""
    return lambda m: success_integral(np.sqrt(m.size * entries / pairs(m.facts)), competitors)


def binomial_routing(measured: Measured) -> Array:
    """Routing sends each of the other facts to the query's memory with chance 1 / memories, independently."""
    most = int(measured.facts.max())
    others = np.arange(most)
    chance = success_integral(np.sqrt(KEY_DIM * VALUE_DIM / np.maximum(others, 1e-9)), VOCAB_SIZE)
    weight = binom.pmf(others, measured.facts[..., None] - 1, 1 / measured.size[..., None])
    return np.asarray((weight * chance).sum(-1))


def _gla(pairs_per_fact: int, competitors: int) -> Formula:
    """SNR² = N D / pairs with N = width / 4 key dimensions per head, and D = width over both heads."""
    return lambda m: success_integral(np.sqrt(m.size**2 / 4 / (pairs_per_fact * m.facts)), competitors)


ROUTED = (
    Variant("all entries, V", "every entry of every memory is used; V competitors", _routed(lambda n: n, VOCAB_SIZE)),
    Variant("all entries, V/2", "as before; only values compete", _routed(lambda n: n, VALUES)),
    Variant("other facts, V", "n - 1 facts interfere", _routed(lambda n: n - 1, VOCAB_SIZE)),
    Variant("facts and neighbours, V", "(value, next key) pairs interfere too", _routed(lambda n: 2 * n, VOCAB_SIZE)),
    Variant("one head, V", "only one head's 12 value dimensions", _routed(lambda n: n, VOCAB_SIZE, KEY_DIM * 12)),
    Variant("keys of all heads, V", "48 key dimensions", _routed(lambda n: n, VOCAB_SIZE, 48 * VALUE_DIM)),
    Variant("binomial, V", "a memory gets a binomial number of the facts", binomial_routing),
)  # fmt: skip
GLA = (
    Variant("facts and neighbours, V/2", "(value, next key) pairs interfere too; only values compete", _gla(2, VALUES)),
    Variant("facts and neighbours, V", "as before; all tokens compete", _gla(2, VOCAB_SIZE)),
    Variant("facts, V/2", "only facts interfere", _gla(1, VALUES)),
    Variant("facts, V", "only facts interfere; all tokens compete", _gla(1, VOCAB_SIZE)),
)  # fmt: skip


def errors(measured: Measured, variants: Sequence[Variant], largest_size: float = np.inf) -> Iterator[Errors]:
    """How far each variant is from the measurements, up to a size."""
    here = np.broadcast_to(measured.size <= largest_size, measured.accuracy.shape)
    for variant in variants:
        gaps = np.abs(variant.formula(measured) - measured.accuracy)[here]
        yield Errors(variant, gaps.size, float(gaps.mean()), float(gaps.max()))


# The tables of docs/OTHER_GROUPS.md.


def routed_table(runs: PaperRuns, page: str = "") -> Iterator[str]:
    """A row per formula for routed memories: over the few memories whose keys have room, and over all."""
    few, every = (list(errors(routed_memories(), ROUTED, size)) for size in (FEW, np.inf))
    columns = [
        "formula",
        "why",
        f"MAE, up to {FEW} memories ({few[0].settings})",
        f"MAE, all ({every[0].settings})",
        "max",
    ]
    rows = (
        [a.variant.name, a.variant.reason, f"{a.mean:.3f}", f"{b.mean:.3f}", f"{b.largest:.3f}"]
        for a, b in zip(few, every, strict=True)
    )
    yield from table(columns, rows).splitlines()


def gla_table(runs: PaperRuns, page: str = "") -> Iterator[str]:
    """A row per formula for GLA as published."""
    found = list(errors(gated_linear_attention(), GLA))
    rows = ([one.variant.name, one.variant.reason, f"{one.mean:.3f}", f"{one.largest:.3f}"] for one in found)
    yield from table(["formula", "why", f"MAE ({found[0].settings})", "max"], rows).splitlines()


def gla_settings_table(runs: PaperRuns, page: str = "") -> Iterator[str]:
    """Measured and predicted accuracy of GLA, setting by setting, by the first formula."""
    measured = gated_linear_attention()
    predicted = GLA[0].formula(measured)
    rows = (
        [f"{width:g}, {name}", *(f"{value:.3f}" for value in values)]
        for width, *both in zip(measured.size.ravel(), measured.accuracy, predicted, strict=True)
        for name, values in zip(("measured", "predicted"), both, strict=True)
    )
    yield from table(["width", *(f"{n:g} facts" for n in measured.facts.ravel())], rows).splitlines()
