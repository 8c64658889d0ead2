"""Predicted against measured accuracy, cell by cell, over several grids at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.compare import compare_law
from recallscope.theory.law import Law


@dataclass(frozen=True, eq=False)
class LawPoints:
    """One law on some grids: what it predicts and what was measured, per grid; cells it does not take are left out."""

    law: str
    predicted: Mapping[str, NDArray[np.float64]]
    measured: Mapping[str, NDArray[np.float64]]
    mean_error: float  # mean absolute error over all cells; nan if there are none

    @property
    def cells(self) -> int:
        """Cells behind the mean."""
        return sum(len(values) for values in self.measured.values())


def law_points(law: Law, grids: Mapping[str, AccuracyGrid]) -> LawPoints:
    """All cells of all grids weigh alike in the mean."""
    found = {label: compare_law(grid, law).cells for label, grid in grids.items()}
    errors = [abs(cell.error) for cells in found.values() for cell in cells]
    return LawPoints(
        law.name,
        {label: np.array([cell.predicted for cell in cells]) for label, cells in found.items()},
        {label: np.array([cell.measured for cell in cells]) for label, cells in found.items()},
        float(np.mean(errors)) if errors else float("nan"),
    )
