"""The ablation ladder: which part of Mamba a run lacks, and how well each rung does over its seeds.

Paper: App. I.1, Tab. 8 (`fig:mqar_ablation`), Fig. 17 (`app-fig:circuit-minimality`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean, pstdev

from recallscope.analysis.accuracy_grid import Row, row_of
from recallscope.records import RunRecord

# rung: what it is, and the accuracy the paper prints
LADDER: dict[str, tuple[str, float]] = {
    "Base": ("one layer, no norm, conv width 4", 1.0),
    "A": ("Base with A-bar = I, no discretisation", 1.0),
    "B": ("A without the gate", 1.0),
    "C": ("B without SiLU after the convolution", 1.0),
    "D": ("C with conv width 2", 1.0),
    "E": ("C with conv width 1: no convolution", 0.06),
}


@dataclass(frozen=True)
class Rung:
    """One step of the ladder, with the accuracy of every seed in their order."""

    name: str
    says: str
    published: float
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return mean(self.accuracies)

    @property
    def spread(self) -> float:
        """Standard deviation over the seeds, as printed: divided by their number."""
        return pstdev(self.accuracies)


def rung_of(run: RunRecord | Row) -> str:
    """Which step of the ladder a run is, from the parts its model has."""
    row = row_of(run)
    if row["transition"] == "selective":
        return "Base"
    if row["gate"]:
        return "A"
    if row["activation"] == "silu":
        return "B"
    widths = {4: "C", 2: "D", 1: "E"}
    if row["conv_width"] not in widths:
        raise ValueError(f"conv_width={row['conv_width']} is no rung of the ladder, which has 4, 2 and 1 (Tab. 8).")
    return widths[row["conv_width"]]


def ladder(runs: Iterable[RunRecord | Row]) -> list[Rung]:
    """The rungs that have runs, from Base down."""
    rows = sorted((row_of(run) for run in runs), key=lambda row: row["seed"])
    by_rung = {name: tuple(row["test_accuracy"] for row in rows if rung_of(row) == name) for name in LADDER}
    return [Rung(name, *LADDER[name], accuracies) for name, accuracies in by_rung.items() if accuracies]
