"""Laws on measured cells: what a law says of each, and how far each law is off on one grid or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from recallscope.analysis.table import fields_of, rows_of
from recallscope.specs import Value
from recallscope.theory.law import LAWS, Law
from recallscope.theory.problem import FIELDS, Problem
from recallscope.theory.reduction import one_head

if TYPE_CHECKING:
    from recallscope.analysis.accuracy_grid import AccuracyGrid


def dimensions(cells: DataFrame) -> Problem:
    """The sizes of some cells, of any task and length, as one Problem; several heads are brought down to one.

    Where heads only bound recall (MHA), the lower bound is taken.

    Paper: Thm 4.7 (`thm:multi-head-recall`).
    """
    singles = [one_head(Problem.from_words({**cell, "task": "mqar", "length": None})) for cell in rows_of(cells)]
    letters = {"vocab_size": "V", "num_facts": "N_f", "embed_dim": "D", "state_dim": "N", "num_layers": "Lambda"}
    return Problem.from_words(
        {name: np.array([getattr(one, letter) for one in singles]) for name, letter in letters.items()}
    )


def law_on_cells(law: Callable[..., Any], cells: DataFrame) -> NDArray[np.float64]:
    """The law's probability for each cell, nan where it does not apply; cells of one kind in one call."""
    known = cells[[name for name in FIELDS if name in cells]]
    kinds = known.notna().assign(**{name: known[name] for name in ("task", "head_pattern") if name in known})
    kind = kinds.groupby(list(kinds), dropna=False).ngroup().to_numpy()
    p = np.full(len(cells), np.nan)
    for one in np.unique(kind):
        p[kind == one] = _called(law, known[kind == one].dropna(axis=1))
    return p


def _called(law: Callable[..., Any], cells: DataFrame) -> NDArray[np.float64]:
    """All at once; if the law refuses that, cell by cell, so that one cell it cannot take does not cost the others."""
    fields = {name: cells[name].to_numpy() for name in cells}
    fields |= {name: cells[name].iloc[0] for name in ("task", "head_pattern") if name in cells}
    try:
        problem = Problem.from_words(fields)
        with np.errstate(all="ignore"):
            p = law(problem) if isinstance(law, Law) else law(**one_head(problem).words)
        return np.asarray(p, float)
    except ValueError:
        if len(cells) == 1:
            return np.array([np.nan])
        return np.concatenate([_called(law, cells.iloc[[place]]) for place in range(len(cells))])


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
    has = set(fields_of(grid.cells))
    found = [compare_law(grid, law) for law in laws if has.issuperset(law.needs)]
    return sorted(found, key=lambda c: (not c.cells, -len(c.cells) if not c.cells else 0, c.mean_error))


def compare_law(grid: AccuracyGrid, law: Law) -> Comparison:
    """Errors of one law, cell by cell."""
    measured = grid.measured.sort_values(list(grid.axes))
    predicted = law_on_cells(law, measured)
    cells = tuple(
        CellError(words, seen, float(p))
        for words, seen, p in zip(rows_of(measured[list(grid.axes)]), measured["test_accuracy"], predicted, strict=True)
        if not np.isnan(p)
    )
    errors = np.array([cell.error for cell in cells] or [np.nan])
    size = np.abs(errors)
    left_out = len(measured) - len(cells)
    return Comparison(law.name, float(size.mean()), float(size.max()), float(errors.mean()), cells, left_out)


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
