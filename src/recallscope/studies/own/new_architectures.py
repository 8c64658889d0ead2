"""Predictions about the architectures of 2025 and 2026, our own experiment: each was written down before its training.

`results/new_architectures/README.md` has the predictions as they were committed, with their reasons; `PREDICTIONS` has
the same ranges. The minimal variants that the architecture comparison shows beside the older ones are trained here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.special import stdtrit

from recallscope.presets import Fields
from recallscope.studies.architecture_variants import (
    CELLS,
    COMPARISON,
    MINIMAL,
    NEW,
    QUARTER,
    TINY,
    Cell,
    Measured,
    compared_parts,
    label_of,
    measured,
)
from recallscope.studies.claims import Finding, Ruling, Verdict, own_check
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.markdown import table
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.law import DIMENSIONS, find_law
from recallscope.theory.problem import Array

Outcome = Literal["confirmed", "refuted", "undecided", "not run"]
VERDICTS: dict[Outcome, Verdict] = {"confirmed": "holds", "refuted": "does not hold"}
RULE = "confirmed (holds): the 95% interval lies inside the predicted range; refuted (does not hold): outside of it"

VARIANTS = {variant.label: variant for variant in MINIMAL}
FIRST: Cell = CELLS[0]
WINDOWS = (32, 48)
WINDOW_CELL: Cell = (256, 16, 32, 8)
MEMORIES = (2, 4, 8, 16)
ROUTED_CELL: Cell = (256, 16, 16, 4)
HYBRID = {"kind": "hybrid", "layers": "gated_delta_net gated_delta_net gated_delta_net attention", "norm": "rms"}
TWICE = {"kind": "repeated", "key_repeats": 2}
MAMBA2 = {"trapezoid": False, "turning": 0.0}  # of Mamba-3: what is left is the recurrence of Mamba-2
HALF: dict[int, Fields] = {4: {}, 8: MAMBA2}  # N, and the fields of Mamba-3
PREDICTED = ("Gated DeltaNet-2", "Comba", "DeltaProduct", "Preconditioned")  # at the settings of the comparison
LEAST_APART = 0.03  # between the laws delta and least-squares, where a share of the way means something


def _sizes(cell: Cell) -> dict[str, int]:
    return dict(zip(DIMENSIONS, cell, strict=True))


@experiment("new-architectures", "our own: predictions about architectures of 2025 and 2026", reads=("architectures",))
def new_architectures(scale: Scale) -> Iterator[Part]:
    """Two seeds of two settings for every prediction; then all runs, and the variants of the comparison."""
    if scale == "quick":
        yield _part("hybrid", HYBRID, TINY[0], [0], train=QUARTER | {"learning_rate": 0.003}, cut="tiny task")
        return
    seeds = range({"small": 3, "paper": 5}[scale])
    own = list(_own_parts(seeds))
    compared = {one.label: one for variant in NEW for one in compared_parts(variant, seeds[:-1])}
    for one in (*own, *(compared[label_of("recall", VARIANTS[name])] for name in PREDICTED)):
        zipped = [{name: values[:2] for name, values in group.items()} for group in one.grid.zipped]
        few = replace(one.grid, axes={"seed": one.grid.axes["seed"][:2]}, zipped=zipped)
        yield replace(one, label=f"first of {one.label}", grid=few, turn=-2)
    yield from (*own, *compared.values())


def _part(label: str, model: Fields, cell: Cell, seeds: Any, **options: Any) -> Part:
    zipped = {name: [value] for name, value in _sizes(cell).items()}
    return part(label, COMPARISON, model=model, zipped=zipped, axes={"seed": seeds}, **options)


def _own_parts(seeds: range) -> Iterator[Part]:
    """What the comparison does not run: windows, counts of memories, half a state, other repeats, a hybrid."""
    rates = {name: {"learning_rate": variant.rate} for name, variant in VARIANTS.items()}
    for window in WINDOWS:
        model = {"kind": "window_attention", "window": window}
        yield _part(f"window {window}", model, WINDOW_CELL, seeds, train=rates["window attention"])
    for memories in MEMORIES:
        model, enough = {"kind": "routed_memory", "num_memories": memories}, memories < MEMORIES[-1]
        some = seeds[:-1] if enough else seeds
        yield _part(f"routed {memories}", model, ROUTED_CELL, some, train=rates["routed memories"])
    for N, fields in HALF.items():
        yield _part(f"half {N}", {"kind": "mamba3", **fields}, (*FIRST[:3], N), seeds, train=rates["Mamba-3"])
    for name in ("Gated DeltaNet-2", "KDA"):
        yield _part(f"twice {name}", VARIANTS[name].fields, FIRST, seeds, task=TWICE, train=rates[name])
    yield _part("hybrid", HYBRID, FIRST, seeds, train=rates["Gated DeltaNet"])


# What is measured


def _accuracies(runs: PaperRuns, label: str) -> dict[int, float]:
    """By seed."""
    return {record.spec.seed: record.test_accuracy for record in runs.records(label)}


def gain(runs: PaperRuns, name: str, over: str) -> Array:
    """Accuracy of one variant minus that of another, means of their seeds: one number per setting."""
    mine, theirs = (measured(runs, "recall", VARIANTS[one]) for one in (name, over))
    return np.array([mine[cell].mean - theirs[cell].mean for cell in CELLS if cell in mine and cell in theirs])


def paired(runs: PaperRuns, *labels: str) -> Array:
    """A row for every part: its accuracies at the seeds that all of them were trained with."""
    found = [_accuracies(runs, label) for label in labels]
    seeds = sorted(set.intersection(*map(set, found)))
    return np.array([[one[seed] for seed in seeds] for one in found])


def gain_twice(runs: PaperRuns) -> Array:
    """Gated DeltaNet-2 minus KDA where keys are written twice, seed by seed."""
    mine, theirs = paired(runs, "twice Gated DeltaNet-2", "twice KDA")
    return np.asarray(mine - theirs)


def share_of_the_way(runs: PaperRuns) -> Array:
    """Where the preconditioned delta rule is between the laws of the delta rule (0) and of least squares (1)."""

    def share(cell: Cell, one: Measured) -> tuple[float, float]:
        delta, solved = (float(find_law(name)(**_sizes(cell))) for name in ("delta", "least-squares"))
        return solved - delta, (one.mean - delta) / (solved - delta)

    found = [share(*item) for item in measured(runs, "recall", VARIANTS["Preconditioned"]).items()]
    return np.array([value for apart, value in found if apart >= LEAST_APART])


def visible_share(window: int, num_facts: int) -> float:
    """Share of the queries of MQAR, L = 4 N_f, whose value is among the last `window` tokens.

    Fact i ends at 2 i + 1, the query of slot g is at 2 N_f + 2 g, and facts are asked in any order.
    """
    fact, slot = np.meshgrid(np.arange(num_facts), np.arange(num_facts))
    return float(np.mean(2 * num_facts + 2 * slot - (2 * fact + 1) <= window - 1))


def above_routed_law(runs: PaperRuns, memories: int) -> Array:
    """Accuracy minus the law, of every seed."""
    seen = np.array(list(_accuracies(runs, f"routed {memories}").values()))
    return seen - float(find_law("routed")(**_sizes(ROUTED_CELL), memories=memories))


def few_memories(runs: PaperRuns) -> Array:
    """The same for 2, 4 and 8 memories, means of seeds."""
    found = [above_routed_law(runs, memories) for memories in MEMORIES[:-1]]
    return np.array([seeds.mean() for seeds in found if len(seeds)])


def state_ratio(runs: PaperRuns) -> Array:
    """N at which the law `gated` has the accuracy of Mamba-3 at half the state, over that of Mamba-2's recurrence."""
    N = np.geomspace(1, 32, 101)
    law = find_law("gated")(**_sizes(FIRST) | {"state_dim": N})
    half, whole = np.interp(paired(runs, *(f"half {n}" for n in HALF)), law, N)
    return np.asarray(half / whole)


class Prediction(NamedTuple):
    """A quantity, the range in which it was predicted to lie, and how it is measured: a mean of several values."""

    name: str
    statement: str
    quantity: str
    low: float
    high: float
    measure: Callable[[PaperRuns], Array]

    @property
    def range(self) -> str:
        """In words."""
        if self.high == np.inf:
            return f"above {self.low:g}"
        return f"below {self.high:g}" if self.low == -np.inf else f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class Held:
    """What was measured of a prediction: the values, their mean and both ends of its 95% interval."""

    values: tuple[float, ...]
    mean: float
    start: float
    end: float
    outcome: Outcome

    @classmethod
    def of(cls, one: Prediction, runs: PaperRuns) -> Held:
        """Student's interval; with fewer than two values nothing is said."""
        values = one.measure(runs)
        if len(values) < 2:
            return cls(tuple(values), np.nan, np.nan, np.nan, "not run")
        mean, n = float(values.mean()), len(values)
        half = float(stdtrit(n - 1, 0.975) * values.std(ddof=1) / n**0.5)
        start, end = mean - half, mean + half
        inside, outside = one.low <= start and end <= one.high, end < one.low or start > one.high
        return cls(tuple(values), mean, start, end, "confirmed" if inside else "refuted" if outside else "undecided")

    @property
    def text(self) -> str:
        """Mean and interval."""
        return "-" if self.outcome == "not run" else f"{self.mean:.3f} ({self.start:.3f} to {self.end:.3f})"

    @property
    def each(self) -> str:
        """All values."""
        return ", ".join(f"{value:.3f}" for value in self.values)


def _seeds(label: str, expected: float = 0.0) -> Callable[[PaperRuns], Array]:
    return lambda runs: np.array(list(_accuracies(runs, label).values())) - expected


def _gain(name: str, over: str) -> Callable[[PaperRuns], Array]:
    return lambda runs: gain(runs, name, over)


PREDICTIONS = (
    Prediction("gdn2-plain", "Gated DeltaNet-2 gains nothing where keys are distinct",
               "accuracy minus KDA's, six settings", -0.02, 0.02, _gain("Gated DeltaNet-2", "KDA")),
    Prediction("gdn2-repeats", "Gated DeltaNet-2 gains where keys are written twice",
               "accuracy minus KDA's, three seeds", 0.01, np.inf, gain_twice),
    Prediction("comba-plain", "Comba recalls as Gated DeltaNet does",
               "accuracy minus Gated DeltaNet's, six settings", -0.02, 0.02, _gain("Comba", "Gated DeltaNet")),
    Prediction("product-plain", "DeltaProduct gains nothing on MQAR",
               "accuracy minus DeltaNet's, six settings", -0.02, 0.02, _gain("DeltaProduct", "DeltaNet")),
    Prediction("precond-between", "Preconditioned Gated DeltaNet lies between the delta rule and least squares",
               f"share of the way between their laws, settings where these are {LEAST_APART} apart", -0.1, 1.1,
               share_of_the_way),
    Prediction("precond-near", "Preconditioned Gated DeltaNet is near the delta rule", "the same share", -np.inf, 0.25,
               share_of_the_way),
    *(Prediction(f"window-{w}", f"a window of {w} tokens recalls exactly the facts inside it",
                 f"accuracy minus {visible_share(w, WINDOW_CELL[1]):.3f}, the share of queries that see their fact; "
                 "three seeds", -0.02, 0.02, _seeds(f"window {w}", visible_share(w, WINDOW_CELL[1]))) for w in WINDOWS),
    Prediction("hybrid", "three layers of Gated DeltaNet and one of attention recall everything",
               "accuracy, three seeds", 0.99, np.inf, _seeds("hybrid")),
    Prediction("routed-few", "2, 4 and 8 routed memories follow their law, SNR² = B N D / n",
               "accuracy minus the law's, mean over the three", -0.03, 0.03, few_memories),
    Prediction("routed-many", "16 routed memories fall short of it: key and route do not fit into D = 16",
               "accuracy minus the law's, three seeds", -np.inf, -0.02,
               lambda runs: above_routed_law(runs, MEMORIES[-1])),
    Prediction("mamba3-half", "Mamba-3 with half the state of Mamba-2 has half its SNR²",
               "ratio of the N at which the law has their accuracies, three seeds", 0.4, 0.6, state_ratio),
)  # fmt: skip


@new_architectures.findings
def outcomes(runs: PaperRuns) -> Iterator[Finding]:
    """Every prediction with its interval."""
    for one in PREDICTIONS:
        check, held = own_check(f"Predicted before training: {one.statement}"), Held.of(one, runs)
        if held.outcome == "not run":
            yield check.untested("fewer than two values: not run")
            continue
        basis = f"{one.quantity}; {held.each}"
        ruling = Ruling(VERDICTS.get(held.outcome, "not tested"), RULE)
        yield check.answer(f"{held.text}, predicted {one.range}: {held.outcome}", ruling, basis)


def predictions_table(runs: PaperRuns, page: str = "") -> Iterator[str]:
    """Every prediction with what came out."""
    head = ["prediction", "quantity", "predicted", "measured, mean and 95% interval", "values", "outcome"]
    found = ((one, Held.of(one, runs)) for one in PREDICTIONS)
    yield from table(
        head,
        ([one.statement, one.quantity, one.range, held.text, held.each, f"**{held.outcome}**"] for one, held in found),
    )
