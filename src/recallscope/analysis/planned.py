"""Grids on the axes that were planned: cells without a run stay empty instead of missing from the axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from recallscope.analysis.accuracy_grid import AccuracyGrid, Reduce, Row
from recallscope.analysis.predicted import law_on_cells
from recallscope.runs.grid import Grid
from recallscope.specs import in_words
from recallscope.theory.law import Law


def planned_rows(grid: Grid) -> list[dict[str, Any]]:
    """The words of every run of a grid, seeds left out, so that each cell comes once."""
    found = {}
    for cell in grid.cells():
        words = {name: value for name, value in in_words(cell.spec).items() if name != "seed"}
        found[tuple(words.items())] = words
    return list(found.values())


def planned_grid(
    grid: Grid,
    rows: Sequence[Row],
    axes: Sequence[str] = ("embed_dim", "state_dim"),
    *,
    reduce: Reduce = "best",
    seed: int | None = None,
) -> AccuracyGrid:
    """The runs there are, on the axes of the grid; nan where none is done yet or none is asked for."""
    empty = AccuracyGrid.from_runs([row | {"test_accuracy": np.nan} for row in planned_rows(grid)], axes)
    measured = AccuracyGrid.from_runs(rows, axes, reduce=reduce, seed=seed)
    accuracy, counts = np.full(empty.accuracy.shape, np.nan), np.zeros(empty.accuracy.shape, int)
    for place, value in measured.cells():
        words = measured.words(place)
        here = tuple(values.index(words[name]) for name, values in empty.axes.items())
        accuracy[here], counts[here] = value, measured.counts[place]
    return replace(empty, accuracy=accuracy, counts=counts, source=measured.source)


def law_grid(law: Law, grid: Grid, axes: Sequence[str] = ("embed_dim", "state_dim")) -> AccuracyGrid:
    """What a law predicts for the cells of a grid; a D-N grid leaves N > D empty, as the trained one does."""
    rows = planned_rows(grid)
    predicted = law_on_cells(law, rows)
    return AccuracyGrid.from_runs(
        [row | {"test_accuracy": p} for row, p in zip(rows, predicted, strict=True)], axes, source=law.name
    )
