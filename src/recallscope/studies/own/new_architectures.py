"""Predictions about the architectures of 2025 and 2026, our own experiment: each was written down before its training.

`results/new_architectures/README.md` has the predictions as they were committed, with their reasons; `PREDICTIONS` has
the same ranges. Runs that compare a form with others at equal D and N are those of the architecture comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.stats import t as student

from recallscope.presets import Fields
from recallscope.studies.architecture_forms import BARE, CELLS, COMPARISON, QUARTER, TINY, Cell, Form, label_of
from recallscope.studies.claims import Finding, Verdict, own_check
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.law import DIMENSIONS, find_law
from recallscope.theory.problem import Array

Outcome = Literal["confirmed", "refuted", "undecided", "not run"]
VERDICTS: dict[Outcome, Verdict] = {"confirmed": "holds", "refuted": "does not hold"}
_LABELS = {form.label: form for form in BARE}

FIRST: Cell = (512, 16, 32, 8)
WINDOWS = (32, 48)
WINDOW_CELL: Cell = (256, 16, 32, 8)
MEMORIES = (2, 4, 8, 16)
ROUTED_CELL: Cell = (256, 16, 16, 4)
HYBRID = "gated_delta_net gated_delta_net gated_delta_net attention"
LONGER = {
    "warmup_steps": 100,
    "flat_steps": 700,
    "decay_steps": 2200,
    "learning_rate": 0.003,
}  # as published layers
REPEATED = {"kind": "repeated", "key_repeats": 2}
MAMBA2 = {"trapezoid": False, "turning": 0.0}  # of Mamba-3: what is left is the recurrence of Mamba-2
HALF = ((4, {}), (8, MAMBA2))  # N and the fields of Mamba-3
LEAST_APART = 0.03  # between the laws delta and least-squares, where a share of the way means something


def _sizes(cell: Cell) -> dict[str, list[int]]:
    return {name: [value] for name, value in zip(DIMENSIONS, cell, strict=True)}


@experiment("new-architectures", "our own: predictions about architectures of 2025 and 2026", reads=("architectures",))
def new_architectures(scale: Scale) -> Iterator[Part]:
    """What the architecture comparison does not run: windows, routers, hybrids, harder repeats, half a state."""
    quick = scale == "quick"
    train: Fields = QUARTER if quick else {}
    cut, seeds = ("tiny task" if quick else ""), range(1 if quick else 3)

    def one(label: str, model: Fields, cell: Cell, **options: Any) -> Part:
        options = {"train": train, "axes": {"seed": seeds}, "cut": cut} | options
        return part(label, COMPARISON, model=model, zipped=_sizes(TINY[0] if quick else cell), **options)

    for window in WINDOWS:
        yield one(f"window {window}", {"kind": "window_attention", "window": window}, WINDOW_CELL)
    for memories in MEMORIES:
        few = {"seed": seeds[:2] if memories < MEMORIES[-1] else seeds}
        yield one(f"routed {memories}", {"kind": "routed_memory", "num_memories": memories}, ROUTED_CELL, axes=few)
    for N, fields in HALF:
        yield one(f"half {N}", {"kind": "mamba3", **fields}, (*FIRST[:3], N))
    for label in ("Gated DeltaNet-2", "KDA"):
        yield one(f"repeats {label}", _LABELS[label].fields, FIRST, task=REPEATED)
    yield one("hybrid", {"kind": "hybrid", "layers": HYBRID, "as_published": True, "norm": "rms"}, FIRST,
              train=QUARTER if quick else LONGER)  # fmt: skip


# What is measured


def _accuracies(runs: PaperRuns, label: str) -> Array:
    """One per seed, by seed."""
    found = {record.spec.seed: record.test_accuracy for record in runs.records(label)}
    return np.array([found[seed] for seed in sorted(found)])


def _by_setting(runs: PaperRuns, form: Form) -> dict[Cell, dict[int, float]]:
    found: dict[Cell, dict[int, float]] = {}
    for record in runs.records(label_of("recall", form)):
        V, N_f, D, N = (record.fields[name] for name in DIMENSIONS)
        found.setdefault((V, N_f, D, N), {})[record.spec.seed] = record.test_accuracy  # type: ignore[index]
    return found


def gain(runs: PaperRuns, label: str, over: str) -> Array:
    """Accuracy of one form minus that of another: the mean of their common seeds, one number per setting."""
    mine, theirs = (_by_setting(runs, _LABELS[name]) for name in (label, over))
    common = {cell: mine[cell].keys() & theirs[cell].keys() for cell in CELLS if cell in mine and cell in theirs}
    pairs = {cell: [mine[cell][seed] - theirs[cell][seed] for seed in seeds] for cell, seeds in common.items() if seeds}
    return np.array([np.mean(differences) for differences in pairs.values()])


def gain_on_repeats(runs: PaperRuns) -> Array:
    """Gated DeltaNet-2 minus KDA, seed by seed."""
    mine, theirs = (_accuracies(runs, f"repeats {label}") for label in ("Gated DeltaNet-2", "KDA"))
    return mine - theirs if len(mine) == len(theirs) else np.array([])


def share_of_the_way(runs: PaperRuns) -> Array:
    """Where the preconditioned delta rule is between the laws of the delta rule (0) and of least squares (1)."""
    found = []
    for cell, seeds in _by_setting(runs, _LABELS["Preconditioned"]).items():
        sizes = dict(zip(DIMENSIONS, cell, strict=True))
        delta, solved = (float(find_law(name)(task="mqar", **sizes)) for name in ("delta", "least-squares"))
        if solved - delta >= LEAST_APART:
            found.append((float(np.mean(list(seeds.values()))) - delta) / (solved - delta))
    return np.array(found)


def visible_share(window: int, num_facts: int) -> float:
    """Share of the queries of MQAR, L = 4 N_f, whose value is among the last `window` tokens.

    Fact i ends at 2 i + 1, the query of slot g is at 2 N_f + 2 g, and facts are asked in any order.
    """
    fact, slot = np.meshgrid(np.arange(num_facts), np.arange(num_facts))
    return float(np.mean(2 * num_facts + 2 * slot - (2 * fact + 1) <= window - 1))


def above_routed_law(runs: PaperRuns, *counts: int) -> Array:
    """Accuracy minus the law: one number per count of memories, or per seed of a single count."""
    sizes, found = dict(zip(DIMENSIONS, ROUTED_CELL, strict=True)), []
    for memories in counts:
        seen = _accuracies(runs, f"routed {memories}")
        if len(seen):
            found.append(seen - float(find_law("routed")(task="mqar", **sizes, memories=memories)))
    return found[0] if len(counts) == 1 and found else np.array([one.mean() for one in found])


def state_ratio(runs: PaperRuns) -> Array:
    """N at which the law `gated` has the accuracy of Mamba-3 at half the state, over that of Mamba-2's recurrence."""
    sizes, N = dict(zip(DIMENSIONS[:3], FIRST[:3], strict=True)), np.geomspace(1, 32, 101)
    law = find_law("gated")(task="mqar", **sizes, state_dim=N)
    half, whole = (np.interp(_accuracies(runs, f"half {n}"), law, N) for n, _ in HALF)
    return half / whole if len(half) == len(whole) else np.array([])


@dataclass(frozen=True)
class Prediction:
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

    def interval(self, runs: PaperRuns) -> tuple[float, float, float] | None:
        """Mean and both ends of its 95% interval; None with fewer than two values."""
        values = self.measure(runs)
        if len(values) < 2:
            return None
        mean, half = float(values.mean()), student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
        return mean, mean - float(half), mean + float(half)

    def outcome(self, runs: PaperRuns) -> Outcome:
        """By where the interval lies."""
        found = self.interval(runs)
        if found is None:
            return "not run"
        _, start, end = found
        if self.low <= start and end <= self.high:
            return "confirmed"
        return "refuted" if end < self.low or start > self.high else "undecided"


def _accuracy_beyond(label: str, expected: float = 0.0) -> Callable[[PaperRuns], Array]:
    return lambda runs: _accuracies(runs, label) - expected


def _gain(label: str, over: str) -> Callable[[PaperRuns], Array]:
    return lambda runs: gain(runs, label, over)


PREDICTIONS = (
    Prediction("gdn2-plain", "Gated DeltaNet-2 gains nothing where keys are distinct",
               "accuracy minus KDA's, six settings", -0.02, 0.02, _gain("Gated DeltaNet-2", "KDA")),
    Prediction("gdn2-repeats", "it gains where keys are written twice",
               "accuracy minus KDA's, three seeds", 0.01, np.inf, gain_on_repeats),
    Prediction("comba-plain", "Comba recalls as Gated DeltaNet does",
               "accuracy minus Gated DeltaNet's, six settings", -0.02, 0.02, _gain("Comba", "Gated DeltaNet")),
    Prediction("product-plain", "DeltaProduct gains nothing on MQAR",
               "accuracy minus DeltaNet's, six settings", -0.02, 0.02, _gain("DeltaProduct", "DeltaNet")),
    Prediction("precond-between", "Preconditioned Gated DeltaNet lies between the delta rule and least squares",
               "share of the way between their laws, six settings", -0.1, 1.1, share_of_the_way),
    Prediction("precond-near", "and near the delta rule", "the same share", -np.inf, 0.25, share_of_the_way),
    *(Prediction(f"window-{w}", f"a window of {w} tokens recalls exactly the facts inside it",
                 f"accuracy minus {visible_share(w, WINDOW_CELL[1]):.3f}, the share of queries that see their fact",
                 -0.02, 0.02, _accuracy_beyond(f"window {w}", visible_share(w, WINDOW_CELL[1]))) for w in WINDOWS),
    Prediction("hybrid", "three layers of Gated DeltaNet and one of attention recall everything",
               "accuracy, three seeds", 0.99, np.inf, _accuracy_beyond("hybrid")),
    Prediction("routed-few", "2, 4 and 8 routed memories follow their law, SNR² = B N D / n",
               "accuracy minus the law's, mean over the three", -0.03, 0.03,
               lambda runs: above_routed_law(runs, *MEMORIES[:-1])),
    Prediction("routed-many", "16 fall short of it: key and route do not fit into D = 16",
               "accuracy minus the law's, three seeds", -np.inf, -0.02,
               lambda runs: above_routed_law(runs, MEMORIES[-1])),
    Prediction("mamba3-half", "Mamba-3 with half the state of Mamba-2 has half its SNR²",
               "ratio of the N at which the law has their accuracies, three seeds", 0.4, 0.6, state_ratio),
)  # fmt: skip


@new_architectures.findings
def outcomes(runs: PaperRuns) -> Iterator[Finding]:
    """Every prediction with its interval."""
    for one in PREDICTIONS:
        check = own_check(f"Predicted: {one.statement}")
        outcome, found = one.outcome(runs), one.interval(runs)
        if found is None:
            yield check.untested("not run yet")
            continue
        text = "{:.3f} ({:.3f} to {:.3f})".format(*found) + f", predicted {one.range}: {outcome}"
        basis = f"{one.quantity}; 95% interval of {len(one.measure(runs))} values"
        yield check.answer(text, VERDICTS.get(outcome, "not tested"), basis)
