"""AccuracyGrid: recall accuracy over axes of dimensions, whichever road it came by: trained, predicted or designed.

A pivot of the table of runs. Everything after it (fits, comparisons, figures) reads this one type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.seed_noise import UNKNOWN_NOISE, SeedNoise, seed_noise
from recallscope.analysis.table import (
    COMPARED,
    CONVERGED,
    D_N,
    Reduce,
    as_table,
    cells_of,
    fields_of,
    recalls,
    sorted_values,
    values_of,
)
from recallscope.notebook import html_heat_map, html_table
from recallscope.runs.grid import Grid
from recallscope.specs import TaskSpec, TrainSpec, Value, flat_fields
from recallscope.theory.law import Law


@dataclass(frozen=True, eq=False)
class AccuracyGrid:
    """Cells with their accuracy, nan where nothing was measured or a law does not apply, on the axes that order them.

    `cells` has a row per cell: its fields, `test_accuracy`, and the number of `seeds` behind it (`cells_of`).
    """

    axes: Mapping[str, tuple[Value, ...]]
    cells: DataFrame
    source: str
    reduce: Reduce = COMPARED
    noise: SeedNoise = UNKNOWN_NOISE  # of the runs behind the cells

    @classmethod
    def over(cls, axes: Mapping[str, Sequence[Value]], task: TaskSpec | None = None, **fields: Value) -> AccuracyGrid:
        """An empty grid: axes, and what all its cells share. With facts on an axis the length follows from them."""
        own = task.model_dump(mode="json") if task else {}
        shared = {("task" if name == "kind" else name): value for name, value in own.items()} | fields
        if "num_facts" in axes:
            shared.pop("length", None)
        places = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
        cells = as_table(shared | place | {"test_accuracy": np.nan, "seeds": 0} for place in places)
        return cls({name: tuple(values) for name, values in axes.items()}, cells, "empty")

    @classmethod
    def from_runs(
        cls,
        table: DataFrame,
        axes: Sequence[str] = D_N,
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
        cells = cells_of(table, axes, reduce, seed=seed, threshold=threshold)
        values = {name: tuple(sorted_values(values_of(cells[name]))) for name in axes}
        text = source or f"{reduce} of {len(table)} runs" + (f", seed {seed}" if reduce == "seed" else "")
        return cls(values, cells, text, reduce, seed_noise(table))

    @classmethod
    def from_circuits(cls, circuits: DataFrame, axes: Sequence[str] = D_N) -> AccuracyGrid:
        """Mean accuracy of designed circuits over their random draws; rows as `designed_rows` measures them."""
        return cls.from_runs(circuits, axes, reduce="mean", source="designed circuits")

    @classmethod
    def from_law(cls, law: Callable[..., Any], like: AccuracyGrid, *, name: str = "") -> AccuracyGrid:
        """A law's prediction for every cell of a grid, measured or empty; nan where the law does not apply."""
        cells = like.cells.assign(test_accuracy=law_on_cells(law, like.cells), seeds=0)
        return cls(like.axes, cells, name or str(getattr(law, "name", "law")))

    @cached_property
    def places(self) -> tuple[NDArray[np.int64], ...]:
        """Where the cells are in an array over the axes."""
        at = {name: {value: place for place, value in enumerate(values)} for name, values in self.axes.items()}
        return tuple(np.array([at[name][value] for value in self.cells[name]], int) for name in self.axes)

    @cached_property
    def accuracy(self) -> NDArray[np.float64]:
        """Accuracy over the axes."""
        found = np.full([len(values) for values in self.axes.values()], np.nan)
        found[self.places] = self.cells["test_accuracy"]
        return found

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Runs behind every cell, over the axes."""
        found = np.zeros([len(values) for values in self.axes.values()], int)
        found[self.places] = self.cells["seeds"]
        return found

    @cached_property
    def measured(self) -> DataFrame:
        """The cells that have an accuracy."""
        return self.cells[self.cells["test_accuracy"].notna()]

    @property
    def shared(self) -> dict[str, Value]:
        """Fields that all cells have in common."""
        same = [name for name in fields_of(self.cells) if self.cells[name].nunique(dropna=False) == 1]
        return {name: values_of(self.cells[name])[0] for name in same if name not in self.axes}

    def _repr_html_(self) -> str:
        """For notebooks: a heat map of one or two axes; of more, what the axes are."""
        names, values = list(self.axes), list(self.axes.values())
        shared = {name: value for name, value in self.shared.items() if name not in TrainSpec.model_fields}
        title = f"{self.source}: " + ", ".join(f"{name}={value}" for name, value in shared.items())
        if not 1 <= len(names) <= 2:
            return html_table(title, dict(self.axes), f"{len(self.measured)} cells")
        table = self.accuracy.reshape(len(values[0]), -1)
        corner, columns = (f"{names[0]} \\ {names[1]}", values[1]) if len(names) == 2 else (names[0], ("",))
        return html_heat_map(title, corner, columns, list(zip(values[0], table, strict=True)))


def planned_cells(plan: Grid) -> DataFrame:
    """The fields of every run of a grid, seeds left out, so that each cell comes once."""
    return as_table(flat_fields(cell.spec) for cell in plan.cells()).drop(columns="seed").drop_duplicates()


def planned_grid(
    plan: Grid, table: DataFrame, axes: Sequence[str] = D_N, *, reduce: Reduce = "best", seed: int | None = None
) -> AccuracyGrid:
    """The runs there are, on the axes of the grid; nan where none is done yet or none is asked for."""
    asked = cells_of(planned_cells(plan).assign(test_accuracy=np.nan), axes).drop(columns=["test_accuracy", "seeds"])
    measured = AccuracyGrid.from_runs(table, axes, reduce=reduce, seed=seed)
    found = measured.cells[[*axes, "test_accuracy", "seeds"]]
    cells = asked.merge(found, how="left", on=list(axes)).fillna({"seeds": 0})
    return replace(measured, axes={name: tuple(sorted_values(values_of(asked[name]))) for name in axes}, cells=cells)


def law_grid(law: Law, plan: Grid, axes: Sequence[str] = D_N) -> AccuracyGrid:
    """What a law predicts for the cells of a grid; a D-N grid leaves N > D empty, as the trained one does."""
    cells = planned_cells(plan)
    table = cells.assign(test_accuracy=law_on_cells(law, cells), seed=0)
    return AccuracyGrid.from_runs(table, axes, source=law.name)


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


def convergence_grid(table: DataFrame, axes: Sequence[str] = D_N, *, threshold: float = CONVERGED) -> AccuracyGrid:
    """Share of seeds per cell that left chance and reach the threshold; `counts` says out of how many."""
    return AccuracyGrid.from_runs(_judged(table), axes, reduce="convergence", threshold=threshold)


def _judged(table: DataFrame) -> DataFrame:
    """A seed that stayed at chance has not converged, whatever its accuracy (`health`)."""
    return table.assign(test_accuracy=table["test_accuracy"].where(recalls(table), 0.0))


def convergence_by_best(
    table: DataFrame, axes: Sequence[str] = D_N, *, threshold: float = CONVERGED, bins: int = 10
) -> list[SeedBin]:
    """Seeds of all cells by the best accuracy of their cell: failures of optimisation, told from lack of capacity."""
    if bins < 1:
        raise ValueError(f"bins={bins}: at least one is needed.")
    best, share = cells_of(table, axes, "best"), cells_of(_judged(table), axes, "convergence", threshold=threshold)
    place = np.minimum((best["test_accuracy"] * bins).astype(int), bins - 1)
    converged = (share["test_accuracy"] * share["seeds"]).round().astype(int)
    columns = (np.bincount(place, weights, bins).astype(int) for weights in (None, best["seeds"], converged))
    return [SeedBin(i / bins, (i + 1) / bins, *map(int, totals)) for i, totals in enumerate(zip(*columns, strict=True))]
