"""Measurements as rows: the fields of a run and its accuracy, put together by cell and by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recallscope.records import RunRecord
from recallscope.registry import suggestion
from recallscope.specs import RESULTS, TrainSpec, Value, flat_fields

Reduce = Literal["best", "mean", "seed", "convergence"]
Row = Mapping[str, Any]  # one measurement: fields of its run, and test_accuracy

_NO_FIELDS = frozenset(("run", "status", "needs", *RESULTS))
CONVERGED = 0.1  # accuracy from which a seed counts as converged
# The number of a cell wherever cells are compared, with a law or with one another. The best of three seeds lies above
# the best of one by chance alone; their mean does not.
COMPARED: Reduce = "mean"


def row_of(run: RunRecord | Row) -> dict[str, Any]:
    """A measurement as fields and accuracy; fields its model does not have are left out."""
    if isinstance(run, RunRecord):
        results = {"test_accuracy": run.test_accuracy, "test_queries": run.test_queries, "warning": run.flag}
        return {**flat_fields(run.spec), **results}
    return {name: value for name, value in run.items() if value is not None}


def fields_of(row: Row) -> dict[str, Any]:
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
                f"{suggestion(missing[0], fields_of(row))}"
            )
        cells.setdefault(tuple(row[name] for name in axes), []).append(row)
    for key, members in cells.items():
        apart = differing(members) - {"seed"}
        if apart:
            name = sorted(apart, key=lambda word: (word in TrainSpec.model_fields, word))[0]
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


def differing(rows: Sequence[Row]) -> set[str]:
    """Words in which some rows differ."""
    names = dict.fromkeys(name for row in rows for name in fields_of(row))
    return {name for name in names if len({row.get(name) for row in rows}) > 1}


CELL_FIELDS = ("task", "vocab_size", "num_facts", "length", "model", "embed_dim", "state_dim")
_CELL = (*CELL_FIELDS, "num_layers", "residual", "num_heads", "head_pattern", "key_repeats", "batch_size")


def cell_fields(rows: Sequence[Row]) -> list[str]:
    """The fields that make a cell, as far as all rows have them."""
    return [name for name in _CELL if all(name in row for row in rows)]


def compared_cells(rows: Sequence[Row], reduce: Reduce = COMPARED) -> list[dict[str, Any]]:
    """The first row of every cell with the accuracy it is compared by, and how many seeds are behind it."""
    one_number = reducer(reduce)
    return [
        {**members[0], "test_accuracy": one_number(accuracies(members)), "seeds": len(members)}
        for members in group_cells(rows, cell_fields(rows)).values()
    ]


def recalls(row: Row) -> bool:
    """Whether a run did more than guess; one that was never judged counts as such."""
    return row.get("warning") != "at-chance"


def learned(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows but those that stayed at chance where another seed of their cell did not."""
    cells = [frozenset((fields_of(row) | {"seed": None}).items()) for row in rows]
    recalled = {cell for cell, row in zip(cells, rows, strict=True) if recalls(row)}
    return [row for cell, row in zip(cells, rows, strict=True) if recalls(row) or cell not in recalled]


def accuracies(rows: Sequence[Row]) -> NDArray[np.float64]:
    """The accuracies of some runs."""
    return np.array([row["test_accuracy"] for row in rows], float)


def seeds_by(rows: Sequence[Row], *names: str) -> dict[tuple[Any, ...], NDArray[np.float64]]:
    """The accuracies of every cell's seeds, by these fields of the cell."""
    cells = group_cells(rows, cell_fields(rows)).values()
    return {tuple(members[0][name] for name in names): accuracies(members) for members in cells}


DIMENSIONS = ("embed_dim", "state_dim")
SIZES = ("num_facts", *DIMENSIONS, "num_layers", "num_heads")
FOLLOWING = ("length", "residual")  # follow from the sizes as a rule
NO_SIZES = {"vocab_size", "key_repeats", "seed", *FOLLOWING, *TrainSpec.model_fields}


@dataclass(frozen=True)
class RunGroup:
    """Runs that one fit may take together."""

    label: str
    fields: dict[str, Value]  # that all runs share
    axes: tuple[str, ...]  # that tell its cells apart
    rows: tuple[dict[str, Any], ...]


def group_runs(runs: Iterable[RunRecord | Row]) -> list[RunGroup]:
    """Split runs by task, vocabulary, model and training. A label names task, V and model, and what else differs.

    Of a model without D and N, such as a module of one's own, all whole numbers among its fields count as sizes.
    """
    rows = [row_of(run) for run in runs]
    names = dict.fromkeys(name for row in rows for name in fields_of(row))
    fixed = [name for name in names if name not in (*SIZES, *FOLLOWING, "seed")]
    groups: dict[tuple[Value, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(None if name in _sizes(row) else row.get(name) for name in fixed), []).append(row)
    telling = [
        name
        for index, name in enumerate(fixed)
        if name not in ("task", "vocab_size", "model") and len({key[index] for key in groups}) > 1
    ]
    found = []
    for key, members in sorted(groups.items(), key=lambda item: tuple(str(value) for value in item[0])):
        fields: dict[str, Value] = {name: value for name, value in zip(fixed, key, strict=True) if value is not None}
        more = "".join(f" {name}={fields[name]}" for name in telling if name in fields)
        label = f"{str(fields['task']).upper()} V={fields['vocab_size']} {fields['model']}{more}"
        found.append(RunGroup(label, fields, _axes(members), tuple(members)))
    return found


def _sizes(row: Row) -> tuple[str, ...]:
    """The fields of a run that are sizes of its model or task."""
    if all(name in row for name in DIMENSIONS):
        return SIZES
    own = (name for name in fields_of(row) if type(row.get(name)) is int and name not in NO_SIZES)
    return tuple(dict.fromkeys((*SIZES, *own)))


def _axes(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """Sizes that vary, D and N where there are such; lengths and residuals only where they do not follow from those."""
    always = DIMENSIONS if all(name in rows[0] for name in DIMENSIONS) else ()
    axes = [name for name in _sizes(rows[0]) if name in always or len({row.get(name) for row in rows}) > 1]
    axes = axes or ["num_facts"]
    for name in FOLLOWING:
        cells: dict[tuple[Any, ...], set[Any]] = {}
        for row in rows:
            cells.setdefault(tuple(row.get(axis) for axis in axes), set()).add(row.get(name))
        if any(len(values) > 1 for values in cells.values()):
            axes.append(name)
    return tuple(axes)
