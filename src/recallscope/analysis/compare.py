"""Laws on measured cells: what a law says of each, and how far each law is off on one grid or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from recallscope.specs import Value
from recallscope.theory.law import LAWS, Law
from recallscope.theory.problem import FIELDS, Problem
from recallscope.theory.reduction import one_head

if TYPE_CHECKING:
    from recallscope.analysis.accuracy_grid import AccuracyGrid

Cell = Mapping[str, Any]


def dimensions(cells: Sequence[Cell]) -> Problem:
    """The sizes of some cells, of any task and length, as one Problem; several heads are brought down to one.

    Where heads only bound recall (MHA), the lower bound is taken.

    Paper: Thm 4.7 (`thm:multi-head-recall`).
    """
    singles = [one_head(Problem.from_fields({**cell, "task": "mqar", "length": None})) for cell in cells]
    letters = {"vocab_size": "V", "num_facts": "N_f", "embed_dim": "D", "state_dim": "N", "num_layers": "Lambda"}
    return Problem.from_fields(
        {name: np.array([getattr(one, letter) for one in singles]) for name, letter in letters.items()}
    )


def law_on_cells(law: Callable[..., Any], cells: Sequence[Cell]) -> NDArray[np.float64]:
    """The law's probability for each cell, nan where it does not apply; cells of one kind in one call."""
    p = np.full(len(cells), np.nan)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, cell in enumerate(cells):
        given = tuple(name for name in FIELDS if cell.get(name) is not None)
        groups.setdefault((cell.get("task"), cell.get("head_pattern"), given), []).append(index)
    for (_, _, given), here in groups.items():
        p[here] = _called(law, [cells[index] for index in here], given)
    return p


def _called(law: Callable[..., Any], cells: Sequence[Cell], given: Sequence[str]) -> NDArray[np.float64]:
    """All at once; if the law refuses that, cell by cell, so that one cell it cannot take does not cost the others."""
    fields = {name: np.array([cell[name] for cell in cells]) for name in given}
    fields |= {name: cells[0][name] for name in ("task", "head_pattern") if name in given}
    try:
        problem = Problem.from_fields(fields)
        with np.errstate(all="ignore"):
            p = law(problem) if isinstance(law, Law) else law(**one_head(problem).fields)
        return np.asarray(p, float)
    except ValueError:
        if len(cells) == 1:
            return np.array([np.nan])
        return np.concatenate([_called(law, [cell], given) for cell in cells])


@dataclass(frozen=True)
class CellError:
    """One cell: where it is, what was measured, what a law said."""

    fields: dict[str, Value]  # of the axes
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
    predicted = law_on_cells(law, [grid.fields(place) for place, _ in places])
    cells = tuple(
        CellError({name: grid.fields(place)[name] for name in grid.axes}, measured, float(p))
        for (place, measured), p in zip(places, predicted, strict=True)
        if not np.isnan(p)
    )
    errors = np.array([cell.error for cell in cells] or [np.nan])
    size = np.abs(errors)
    left_out = len(places) - len(cells)
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
