"""AccuracyGrid: recall accuracy over axes of dimensions, whichever road it came by: trained, predicted or designed.

Everything after it (fits, comparisons, figures) reads this one type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.rows import CONVERGED, Reduce, Row, differing, fields_of, group_cells, reducer, row_of
from recallscope.notebook import html_heat_map, html_table
from recallscope.records import RunRecord
from recallscope.runs.grid import Grid
from recallscope.specs import TaskSpec, TrainSpec, Value, flat_fields
from recallscope.theory.law import Law


@dataclass(frozen=True, eq=False)
class AccuracyGrid:
    """Accuracy per cell, nan where nothing was measured or a law does not apply; and how many runs are behind it."""

    axes: Mapping[str, tuple[Value, ...]]
    accuracy: NDArray[np.float64]
    counts: NDArray[np.int64]
    source: str
    shared: Mapping[str, Value] = field(default_factory=dict)  # fields that all cells have in common
    varying: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # fields that follow from the axes, per cell

    def __post_init__(self) -> None:
        shape = tuple(len(values) for values in self.axes.values())
        for name, array in (("accuracy", self.accuracy), ("counts", self.counts), *self.varying.items()):
            if array.shape != shape:
                raise ValueError(f"{name} has shape {array.shape}, and the axes {', '.join(self.axes)} have {shape}.")

    @classmethod
    def over(cls, axes: Mapping[str, Sequence[Value]], task: TaskSpec | None = None, **flat: Value) -> AccuracyGrid:
        """An empty grid: axes, and what all its cells share. With facts on an axis the length follows from them."""
        fields = task.model_dump(mode="json") if task else {}
        shared = {("task" if name == "kind" else name): value for name, value in fields.items()} | flat
        if "num_facts" in axes:
            shared.pop("length", None)
        shape = tuple(len(values) for values in axes.values())
        shared = {name: value for name, value in shared.items() if name not in axes}
        return cls(
            {name: tuple(values) for name, values in axes.items()},
            np.full(shape, np.nan),
            np.zeros(shape, int),
            "empty",
            shared,
        )

    @classmethod
    def from_runs(
        cls,
        runs: Iterable[RunRecord | Row],
        axes: Sequence[str] = ("embed_dim", "state_dim"),
        *,
        reduce: Reduce = "best",
        seed: int | None = None,
        threshold: float = CONVERGED,
        source: str = "",
    ) -> AccuracyGrid:
        """Accuracy of runs per cell: the best of the seeds, their mean, one seed's, or the share that converged.

        Paper: App. K.5 (`app-subsec:seeds`): the best is reported, since capacity is meant and not the luck of
            optimisation; a seed has converged if it reaches 0.1.
        """
        rows = [row_of(run) for run in runs]
        cells = group_cells(rows, axes)
        values = {name: tuple(sorted({key[i] for key in cells}, key=_sort_key)) for i, name in enumerate(axes)}
        grid = cls.over(values)
        varying = {name: np.full(grid.accuracy.shape, None, object) for name in differing(rows) - {*axes, "seed"}}
        for key, members in cells.items():
            place = tuple(values[name].index(value) for name, value in zip(axes, key, strict=True))
            kept = [row for row in members if reduce != "seed" or row.get("seed") == seed]
            grid.counts[place] = len(kept)
            grid.accuracy[place] = reducer(reduce, threshold)(np.array([row["test_accuracy"] for row in kept], float))
            for name, array in varying.items():
                array[place] = members[0].get(name)
        shared = (
            {name: value for name, value in fields_of(rows[0]).items() if name not in {*varying, *axes, "seed"}}
            if rows
            else {}
        )
        origin = source or f"{reduce} of {len(rows)} runs" + (f", seed {seed}" if reduce == "seed" else "")
        return cls(grid.axes, grid.accuracy, grid.counts, origin, shared, varying)

    @classmethod
    def from_circuits(cls, results: Iterable[Row], axes: Sequence[str] = ("embed_dim", "state_dim")) -> AccuracyGrid:
        """Mean accuracy of designed circuits over their random draws; rows as `designed_rows` measures them."""
        return cls.from_runs(results, axes, reduce="mean", source="designed circuits")

    @classmethod
    def from_law(cls, law: Callable[..., Any], like: AccuracyGrid, *, name: str = "") -> AccuracyGrid:
        """A law's prediction for every cell of a grid, measured or empty; nan where the law does not apply."""
        places = [place for place, _ in like.cells(measured=False)]
        accuracy = np.full(like.accuracy.shape, np.nan)
        for place, p in zip(places, law_on_cells(law, [like.fields(place) for place in places]), strict=True):
            accuracy[place] = p
        title = name or str(getattr(law, "name", "law"))
        return cls(like.axes, accuracy, np.zeros(accuracy.shape, int), title, like.shared, like.varying)

    def fields(self, place: tuple[int, ...]) -> dict[str, Value]:
        """All fields of a cell: shared ones, those of the axes, and those that follow."""
        here = {name: values[index] for (name, values), index in zip(self.axes.items(), place, strict=True)}
        return {**self.shared, **{name: array[place] for name, array in self.varying.items()}, **here}

    def _repr_html_(self) -> str:
        """For notebooks: a heat map of one or two axes; of more, what the axes are."""
        names, values = list(self.axes), list(self.axes.values())
        shared = {name: value for name, value in self.shared.items() if name not in TrainSpec.model_fields}
        title = f"{self.source}: " + ", ".join(f"{name}={value}" for name, value in shared.items())
        if not 1 <= len(names) <= 2:
            return html_table(title, dict(self.axes), f"{sum(1 for _ in self.cells())} cells")
        table = self.accuracy.reshape(len(values[0]), -1)
        corner, columns = (f"{names[0]} \\ {names[1]}", values[1]) if len(names) == 2 else (names[0], ("",))
        return html_heat_map(title, corner, columns, list(zip(values[0], table, strict=True)))

    def cells(self, *, measured: bool = True) -> Iterator[tuple[tuple[int, ...], float]]:
        """Places and accuracies, row by row; only those with a number unless asked for all."""
        for place in np.ndindex(self.accuracy.shape):
            if not measured or not np.isnan(self.accuracy[place]):
                yield place, float(self.accuracy[place])


def _sort_key(value: Value) -> tuple[str, Any]:
    return ("", value) if isinstance(value, int | float) else (type(value).__name__, str(value))


def planned_rows(grid: Grid) -> list[dict[str, Any]]:
    """The fields of every run of a grid, seeds left out, so that each cell comes once."""
    found = {}
    for cell in grid.cells():
        fields = {name: value for name, value in flat_fields(cell.spec).items() if name != "seed"}
        found[tuple(fields.items())] = fields
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
        fields = measured.fields(place)
        here = tuple(values.index(fields[name]) for name, values in empty.axes.items())
        accuracy[here], counts[here] = value, measured.counts[place]
    return replace(empty, accuracy=accuracy, counts=counts, source=measured.source)


def law_grid(law: Law, grid: Grid, axes: Sequence[str] = ("embed_dim", "state_dim")) -> AccuracyGrid:
    """What a law predicts for the cells of a grid; a D-N grid leaves N > D empty, as the trained one does."""
    rows = planned_rows(grid)
    predicted = law_on_cells(law, rows)
    return AccuracyGrid.from_runs(
        [row | {"test_accuracy": p} for row, p in zip(rows, predicted, strict=True)], axes, source=law.name
    )


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
