"""How far the luck of optimisation goes: which share of seeds converges, cell by cell and by what a cell can reach.

Paper: App. K.5 (`app-subsec:seeds`), Fig. 20 (`app-fig:seed-reliability`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from recallscope.analysis.accuracy_grid import CONVERGED, AccuracyGrid, Row, group_cells, row_of
from recallscope.records import RunRecord


@dataclass(frozen=True)
class SeedBin:
    """Cells whose best accuracy lies in [low, high), the last bin with its upper end: how their seeds fare."""

    low: float
    high: float
    cells: int
    seeds: int
    converged: int

    @property
    def rate(self) -> float:
        """Share of seeds that converged; nan for an empty bin."""
        return self.converged / self.seeds if self.seeds else float("nan")


def convergence_grid(
    runs: Iterable[RunRecord | Row], axes: Sequence[str] = ("embed_dim", "state_dim"), *, threshold: float = CONVERGED
) -> AccuracyGrid:
    """Share of seeds per cell that reach the threshold; `counts` says out of how many."""
    return AccuracyGrid.from_runs(runs, axes, reduce="convergence", threshold=threshold)


def convergence_by_best(
    runs: Iterable[RunRecord | Row],
    axes: Sequence[str] = ("embed_dim", "state_dim"),
    *,
    threshold: float = CONVERGED,
    bins: int = 10,
) -> list[SeedBin]:
    """Seeds of all cells by the best accuracy of their cell: failures of optimisation, told from lack of capacity."""
    if bins < 1:
        raise ValueError(f"bins={bins}: at least one is needed.")
    totals = np.zeros((bins, 3), int)
    for members in group_cells([row_of(run) for run in runs], axes).values():
        accuracies = np.array([row["test_accuracy"] for row in members])
        index = min(int(accuracies.max() * bins), bins - 1)
        totals[index] += (1, len(accuracies), int((accuracies >= threshold).sum()))
    return [SeedBin(i / bins, (i + 1) / bins, *(int(n) for n in totals[i])) for i in range(bins)]
