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
from recallscope.theory.problem import FIELDS, SINGLE, Problem
from recallscope.theory.reduction import one_head

if TYPE_CHECKING:
    from recallscope.analysis.accuracy_grid import AccuracyGrid


def dimensions(cells: DataFrame) -> Problem:
    """The sizes of some cells, of any task and length, as one Problem; several heads are brought down to one.

    Where heads only bound recall (MHA), the lower bound is taken.

    Paper: Thm 4.7 (`thm:multi-head-recall`).
    """
    singles = [one_head(Problem.from_fields({**cell, "task": "mqar", "length": None})) for cell in rows_of(cells)]
    letters = {"vocab_size": "V", "num_facts": "N_f", "embed_dim": "D", "state_dim": "N", "num_layers": "Lambda"}
    return Problem.from_fields(
        {name: np.array([getattr(one, letter) for one in singles]) for name, letter in letters.items()}
    )


Kind = tuple[list[int], dict[str, Any]]  # places of some cells, and their fields: arrays, and texts that they share


def law_on_cells(law: Callable[..., Any], cells: DataFrame) -> NDArray[np.float64]:
    """The law's probability for each cell, nan where it does not apply; cells of one kind in one call."""
    return _on_kinds(law, _kinds(cells), len(cells))


def _kinds(cells: DataFrame) -> list[Kind]:
    """Cells that have the same fields, and equal ones where a Problem takes one value, such as the task."""
    rows = [{name: v for name, v in row.items() if v is not None} for row in rows_of(cells.filter(FIELDS))]
    places: dict[tuple[Any, ...], list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault((*map(row.get, SINGLE), *row), []).append(place)
    found = []
    for here in places.values():
        fields: dict[str, Any] = {name: np.array([rows[place][name] for place in here]) for name in rows[here[0]]}
        fields |= {name: rows[here[0]][name] for name in SINGLE if name in fields}
        found.append((here, fields))
    return found


def _on_kinds(law: Callable[..., Any], kinds: Iterable[Kind], cells: int) -> NDArray[np.float64]:
    p = np.full(cells, np.nan)
    for here, fields in kinds:
        p[here] = _called(law, fields, len(here))
    return p


def _called(law: Callable[..., Any], fields: Mapping[str, Any], cells: int) -> NDArray[np.float64]:
    """All at once; if the law refuses that, cell by cell, so that one cell it cannot take does not cost the others."""
    try:
        problem = Problem.from_fields(fields)
        with np.errstate(all="ignore"):
            p = law(problem) if isinstance(law, Law) else law(**one_head(problem).fields)
        return np.asarray(p, float)
    except ValueError:
        if cells == 1:
            return np.array([np.nan])
        alone = ({n: v[[place]] if np.ndim(v) else v for n, v in fields.items()} for place in range(cells))
        return np.concatenate([_called(law, one, 1) for one in alone])


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

    Laws of other tasks, and of something the grid's models do not have, such as heads, are left out.
    """
    has, tasks = set(fields_of(grid.cells)), set(grid.cells.get("task", ()))
    speak = (law for law in laws if not tasks or not tasks.isdisjoint(law.tasks))
    found = _compared(grid, [law for law in speak if has.issuperset(law.needs)])
    return sorted(found, key=lambda c: (not c.cells, -len(c.cells) if not c.cells else 0, c.mean_error))


def compare_law(grid: AccuracyGrid, law: Law) -> Comparison:
    """Errors of one law, cell by cell."""
    return _compared(grid, [law])[0]


def _compared(grid: AccuracyGrid, laws: Iterable[Law]) -> list[Comparison]:
    measured = grid.measured.sort_values(list(grid.axes))
    kinds, places, accuracy = _kinds(measured), rows_of(measured[list(grid.axes)]), measured["test_accuracy"].tolist()
    found = []
    for law in laws:
        predicted = _on_kinds(law, kinds, len(measured)).tolist()
        cells = tuple(
            CellError(fields, seen, p) for fields, seen, p in zip(places, accuracy, predicted, strict=True) if p == p
        )
        errors = np.array([cell.error for cell in cells] or [np.nan])
        size, left_out = np.abs(errors), len(measured) - len(cells)
        found.append(Comparison(law.name, float(size.mean()), float(size.max()), float(errors.mean()), cells, left_out))
    return found


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
