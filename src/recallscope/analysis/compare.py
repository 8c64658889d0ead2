"""Measured against predicted: every law of the catalogue on the cells of one grid."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.predicted import law_on_cells
from recallscope.specs import Value
from recallscope.theory.law import LAWS, Law


@dataclass(frozen=True)
class CellError:
    """One cell: where it is, what was measured, what a law said."""

    words: dict[str, Value]  # of the axes
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Measured minus predicted."""
        return self.measured - self.predicted


@dataclass(frozen=True)
class Comparison:
    """One law on one grid. Cells where the law does not apply are left out and counted."""

    law: str
    mean_error: float  # mean absolute error; nan if the law applies nowhere
    max_error: float
    bias: float  # mean of measured minus predicted
    cells: tuple[CellError, ...]
    left_out: int


def compare_laws(grid: AccuracyGrid, laws: Iterable[Law] = LAWS) -> list[Comparison]:
    """All laws, the closest first; those that apply nowhere come last.

    Laws of something the grid's models do not have, such as heads, are left out.
    """
    has = {*grid.axes, *grid.shared, *grid.varying}
    found = [compare_law(grid, law) for law in laws if has.issuperset(law.needs)]
    return sorted(found, key=lambda c: (not c.cells, -len(c.cells) if not c.cells else 0, c.mean_error))


def compare_law(grid: AccuracyGrid, law: Law) -> Comparison:
    """Errors of one law, cell by cell."""
    places = list(grid.cells())
    predicted = law_on_cells(law, [grid.words(place) for place, _ in places])
    cells = tuple(
        CellError({name: grid.words(place)[name] for name in grid.axes}, measured, float(p))
        for (place, measured), p in zip(places, predicted, strict=True)
        if not np.isnan(p)
    )
    errors = np.array([cell.error for cell in cells])
    if not cells:
        return Comparison(law.name, np.nan, np.nan, np.nan, (), len(places))
    return Comparison(
        law.name,
        float(np.abs(errors).mean()),
        float(np.abs(errors).max()),
        float(errors.mean()),
        cells,
        len(places) - len(cells),
    )
