"""AccuracyGrid: recall accuracy over axes of dimensions, whichever road it came by: trained, predicted or designed.

Everything after it (fits, comparisons, figures) reads this one type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recallscope.records import RunRecord
from recallscope.registry import suggestion
from recallscope.specs import RESULTS, TaskSpec, TrainSpec, Value, in_words

Reduce = Literal["best", "mean", "seed", "convergence"]
Row = Mapping[str, Any]  # one measurement: words of its run, and test_accuracy

_NO_FIELDS = frozenset(("run", "status", "needs", *RESULTS))
CONVERGED = 0.1  # accuracy from which a seed counts as converged


@dataclass(frozen=True, eq=False)
class AccuracyGrid:
    """Accuracy per cell, nan where nothing was measured or a law does not apply; and how many runs are behind it."""

    axes: Mapping[str, tuple[Value, ...]]
    accuracy: NDArray[np.float64]
    counts: NDArray[np.int64]
    source: str
    shared: Mapping[str, Value] = field(default_factory=dict)  # words that all cells have in common
    varying: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # words that follow from the axes, per cell

    def __post_init__(self) -> None:
        shape = tuple(len(values) for values in self.axes.values())
        for name, array in (("accuracy", self.accuracy), ("counts", self.counts), *self.varying.items()):
            if array.shape != shape:
                raise ValueError(f"{name} has shape {array.shape}, and the axes {', '.join(self.axes)} have {shape}.")

    @classmethod
    def over(cls, axes: Mapping[str, Sequence[Value]], task: TaskSpec | None = None, **words: Value) -> AccuracyGrid:
        """An empty grid: axes, and what all its cells share. With facts on an axis the length follows from them."""
        fields = task.model_dump(mode="json") if task else {}
        shared = {("task" if name == "kind" else name): value for name, value in fields.items()} | words
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
        varying = {name: np.full(grid.accuracy.shape, None, object) for name in _differing(rows) - {*axes, "seed"}}
        for key, members in cells.items():
            place = tuple(values[name].index(value) for name, value in zip(axes, key, strict=True))
            kept = [row for row in members if reduce != "seed" or row.get("seed") == seed]
            grid.counts[place] = len(kept)
            grid.accuracy[place] = reducer(reduce, threshold)(np.array([row["test_accuracy"] for row in kept], float))
            for name, array in varying.items():
                array[place] = members[0].get(name)
        shared = (
            {name: value for name, value in words_of(rows[0]).items() if name not in {*varying, *axes, "seed"}}
            if rows
            else {}
        )
        said = source or f"{reduce} of {len(rows)} runs" + (f", seed {seed}" if reduce == "seed" else "")
        return cls(grid.axes, grid.accuracy, grid.counts, said, shared, varying)

    @classmethod
    def from_circuits(cls, results: Iterable[Row], axes: Sequence[str] = ("embed_dim", "state_dim")) -> AccuracyGrid:
        """Mean accuracy of designed circuits over their random draws; rows as `designed_rows` measures them."""
        return cls.from_runs(results, axes, reduce="mean", source="designed circuits")

    @classmethod
    def from_law(cls, law: Callable[..., Any], like: AccuracyGrid, *, name: str = "") -> AccuracyGrid:
        """A law's prediction for every cell of a grid, measured or empty; nan where the law does not apply."""
        from recallscope.analysis.predicted import law_on_cells

        places = [place for place, _ in like.cells(measured=False)]
        accuracy = np.full(like.accuracy.shape, np.nan)
        for place, p in zip(places, law_on_cells(law, [like.words(place) for place in places]), strict=True):
            accuracy[place] = p
        title = name or str(getattr(law, "name", "law"))
        return cls(like.axes, accuracy, np.zeros(accuracy.shape, int), title, like.shared, like.varying)

    def words(self, place: tuple[int, ...]) -> dict[str, Value]:
        """All words of a cell: shared ones, those of the axes, and those that follow."""
        here = {name: values[index] for (name, values), index in zip(self.axes.items(), place, strict=True)}
        return {**self.shared, **{name: array[place] for name, array in self.varying.items()}, **here}

    def cells(self, *, measured: bool = True) -> Iterator[tuple[tuple[int, ...], float]]:
        """Places and accuracies, row by row; only those with a number unless asked for all."""
        for place in np.ndindex(self.accuracy.shape):
            if not measured or not np.isnan(self.accuracy[place]):
                yield place, float(self.accuracy[place])


def row_of(run: RunRecord | Row) -> dict[str, Any]:
    """A measurement as words and accuracy; words its model does not have are left out."""
    if isinstance(run, RunRecord):
        return {**in_words(run.spec), "test_accuracy": run.test_accuracy, "test_queries": run.test_queries}
    return {name: value for name, value in run.items() if value is not None}


def words_of(row: Row) -> dict[str, Any]:
    """The fields of a measurement's run, without its name, its state and its results."""
    return {name: value for name, value in row.items() if name not in _NO_FIELDS}


def group_cells(rows: Sequence[Row], axes: Sequence[str]) -> dict[tuple[Value, ...], list[Row]]:
    """Measurements by cell; those of one cell may differ in the seed only."""
    cells: dict[tuple[Value, ...], list[Row]] = {}
    for row in rows:
        missing = [name for name in axes if name not in row]
        if missing:
            raise ValueError(
                f"{missing[0]!r} is no field of a {row.get('model')} model, so it cannot be an axis of these runs. "
                f"{suggestion(missing[0], words_of(row))}"
            )
        cells.setdefault(tuple(row[name] for name in axes), []).append(row)
    for key, members in cells.items():
        differing = _differing(members) - {"seed"}
        if differing:
            name = sorted(differing, key=lambda word: (word in TrainSpec.model_fields, word))[0]
            values = sorted({str(row.get(name)) for row in members})
            where = ", ".join(f"{axis}={value}" for axis, value in zip(axes, key, strict=True))
            raise ValueError(
                f"the cell {where} mixes runs with {name} = {' and '.join(values)}: only seeds may be put together. "
                f"Make {name} an axis, or keep one value of it with a condition."
            )
    return cells


def reducer(reduce: Reduce, threshold: float = CONVERGED) -> Callable[[NDArray[np.float64]], float]:
    """From the accuracies of a cell's seeds to one number; nan if there are none."""
    functions: dict[str, Callable[[NDArray[np.float64]], Any]] = {
        "best": np.max, "mean": np.mean, "seed": np.max, "convergence": lambda values: np.mean(values >= threshold),
    }  # fmt: skip
    if reduce not in functions:
        raise ValueError(f"reduce={reduce!r} is none of {', '.join(functions)}.")
    return lambda values: float(functions[reduce](values)) if len(values) else float("nan")


def _differing(rows: Sequence[Row]) -> set[str]:
    names = dict.fromkeys(name for row in rows for name in words_of(row))
    return {name for name in names if len({row.get(name) for row in rows}) > 1}


def _sort_key(value: Value) -> tuple[str, Any]:
    return ("", value) if isinstance(value, int | float) else (type(value).__name__, str(value))
