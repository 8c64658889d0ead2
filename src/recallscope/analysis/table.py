"""The table: a pandas DataFrame with one row per run, and one column per flat field and result. It is made here only.

Store, fits, figures, explorer and studies hand it on. A field that the model of a run does not have is missing there;
whole numbers stay whole numbers beside it. A cell is what runs have in common that differ in the seed alone: `cells_of`
puts its runs together, and every comparison, fit and grid begins with that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, Series
from pandas.api.types import is_integer_dtype

from recallscope.records import RunRecord, row_of
from recallscope.registry import suggestion
from recallscope.runs.store import RunStore
from recallscope.runs.table import FIRST, LAST, find_runs, parse_conditions
from recallscope.specs import TrainSpec, Value

Reduce = Literal["best", "mean", "seed", "convergence"]

CONVERGED = 0.1  # accuracy from which a seed counts as converged
# The number of a cell wherever cells are compared, with a law or with one another. The best of three seeds lies above
# the best of one by chance alone; their mean does not.
COMPARED: Reduce = "mean"
CELL_FIELDS = ("task", "vocab_size", "num_facts", "length", "model", "embed_dim", "state_dim")
_CELL = (*CELL_FIELDS, "num_layers", "residual", "num_heads", "head_pattern", "key_repeats", "batch_size")
_NO_FIELDS = frozenset((*FIRST, *LAST, "seeds"))


def load_runs(path: Path | str, *conditions: str, trials: bool = False) -> DataFrame:
    """The runs of a store's folder or of a packed file: a row per run, a column per field and result.

    Conditions are those of `recallscope store list`, and all must hold: `load_runs("runs/x", "state_dim<=16")`. Besides
    fields and results there are `run` (the name), `status` (done, failed or damaged) and `needs` (what this
    installation lacks to make the run's spec, as a rule nothing). Learning-rate trials of measurements are left out
    unless `trials` asks for them.
    """
    return as_table(find_runs(RunStore(path), parse_conditions(conditions), trials=trials))


def finished_runs(store: RunStore, conditions: Iterable[str] = ()) -> DataFrame:
    """The runs of a store that were tested, for fits."""
    table = as_table(find_runs(store, parse_conditions([*conditions, "status=done"])))
    return table[table["test_accuracy"].notna()]


def as_table(runs: Iterable[RunRecord | Mapping[str, Value]]) -> DataFrame:
    """Records or rows as a table."""
    rows = [row_of(run) if isinstance(run, RunRecord) else run for run in runs]
    names = dict.fromkeys(name for row in rows for name in row) or (*FIRST, *LAST)
    return DataFrame({name: _column([row.get(name) for row in rows]) for name in names})


def _column(values: list[Value]) -> Series:
    """Whole numbers and truth values keep their type where some are missing."""
    kinds = {type(value) for value in values} - {type(None)}
    nullable = {int: "Int64", bool: "boolean"}.get(*kinds) if len(kinds) == 1 and None in values else None
    return Series(values, dtype="float64" if float in kinds and kinds <= {int, float} else nullable)


def values_of(column: Series) -> list[Value]:
    """The values of a column as Python has them, None for what is missing."""
    return list(column.astype(object).where(column.notna(), None))


def rows_of(table: DataFrame) -> list[dict[str, Any]]:
    """A dictionary per row, None for what is missing."""
    rows: list[dict[str, Any]] = table.astype(object).where(table.notna(), None).to_dict("records")
    return rows


def fields_of(table: DataFrame) -> list[str]:
    """Columns that are fields of the runs: neither names, states and results, nor fields that none of them has."""
    return [name for name, known in table.notna().any().items() if known and name not in _NO_FIELDS]


def varying_columns(table: DataFrame) -> list[str]:
    """Fields in which some runs differ."""
    return [name for name in fields_of(table) if table[name].nunique(dropna=False) > 1]


def cell_fields(table: DataFrame) -> list[str]:
    """The fields that make a cell, as far as all runs have them."""
    return [name for name in _CELL if name in table and table[name].notna().all()]


def cells_of(
    table: DataFrame,
    axes: Sequence[str] | None = None,
    reduce: Reduce = COMPARED,
    *,
    seed: int | None = None,
    threshold: float = CONVERGED,
) -> DataFrame:
    """One row per cell, in the order in which they come: its fields, one accuracy, and how many `seeds` are behind it.

    The accuracy is the best of the seeds, their mean, one seed's, or the share that reach the threshold. Runs of one
    cell may differ in the seed only. Without `axes` all fields count that make a cell.
    """
    axes = list(cell_fields(table) if axes is None else axes)
    if table.empty:
        return DataFrame(columns=[*axes, "test_accuracy", "seeds"])
    for name in axes:
        if name not in table or table[name].isna().any():
            model = table["model"].iloc[0] if "model" in table else None
            raise ValueError(
                f"{name!r} is not a field of a {model} model, so it cannot be an axis of these runs. "
                f"{suggestion(name, fields_of(table))}"
            )
    cells = table.groupby(axes, sort=False)
    fields = [name for name in fields_of(table) if name != "seed"]
    others = [name for name in fields if name not in axes]
    mixed = cells[others].nunique(dropna=False) > 1
    if mixed.any(axis=None):
        name = min(mixed.columns[mixed.any()], key=lambda one: (one in TrainSpec.model_fields, one))
        place = table.groupby(axes, sort=False).ngroup() == mixed[name].to_numpy().argmax()
        values = sorted({str(value) for value in values_of(table.loc[place, name])})
        where = ", ".join(f"{axis}={table.loc[place, axis].iloc[0]}" for axis in axes)
        raise ValueError(
            f"the cell {where} mixes runs with {name} = {' and '.join(values)}: only seeds may be put together. "
            f"Make {name} an axis, or keep one value of it with a condition."
        )
    accuracy = table["test_accuracy"].where(table["seed"] == seed) if reduce == "seed" else table["test_accuracy"]
    one_number = _reducer(reduce, threshold)
    seeds = [values.dropna().to_numpy(float) for _, values in accuracy.groupby(cells.ngroup(), sort=True)]
    found = table.drop_duplicates(axes)[fields].reset_index(drop=True)
    return found.assign(test_accuracy=[one_number(values) for values in seeds], seeds=list(map(len, seeds)))


def _reducer(reduce: Reduce, threshold: float) -> Callable[[NDArray[np.float64]], float]:
    """From the accuracies of a cell's seeds to one number; nan if there are none."""
    functions: dict[str, Callable[[NDArray[np.float64]], Any]] = {
        "best": np.max, "mean": np.mean, "seed": np.max, "convergence": lambda values: np.mean(values >= threshold),
    }  # fmt: skip
    if reduce not in functions:
        raise ValueError(f"reduce={reduce!r} must be one of {', '.join(functions)}.")
    return lambda values: float(functions[reduce](values)) if len(values) else float("nan")


def seeds_by(table: DataFrame, *names: str) -> dict[tuple[Any, ...], NDArray[np.float64]]:
    """The accuracies of every cell's seeds, by these fields of the cell."""
    cells_of(table)  # which refuses to mix
    found: dict[tuple[Any, ...], list[float]] = {}
    for row in rows_of(table):
        found.setdefault(tuple(row[name] for name in names), []).append(row["test_accuracy"])
    return {cell: np.array(values) for cell, values in found.items()}


def accuracies(table: DataFrame) -> NDArray[np.float64]:
    """The accuracies of some runs or cells."""
    return table["test_accuracy"].to_numpy(float)


def recalls(table: DataFrame) -> Series:
    """Whether each run did more than guess; one that was never judged counts as such."""
    return table["warning"].ne("at-chance") if "warning" in table else Series(True, table.index)


def learned(table: DataFrame) -> DataFrame:
    """All runs but those that stayed at chance where another seed of their cell did not."""
    if table.empty:
        return table
    cell = table.groupby([name for name in fields_of(table) if name != "seed"], dropna=False).ngroup()
    fine = recalls(table)
    return table[fine | ~fine.groupby(cell).transform("any")]


# Groups of runs that one fit may take together, where no grid file and no study says which they are

D_N = ("embed_dim", "state_dim")
SIZES = ("num_facts", *D_N, "num_layers", "num_heads")
FOLLOWING = ("length", "residual")  # follow from the sizes as a rule
_NO_SIZES = {"vocab_size", "key_repeats", "seed", *FOLLOWING, *TrainSpec.model_fields}
_FIRST = ("task", "vocab_size", "model")


@dataclass(frozen=True, eq=False)
class RunGroup:
    """Runs that one fit may take together."""

    title: str  # task, vocabulary and model
    fields: dict[str, Value]  # that all runs share
    axes: tuple[str, ...]  # that tell its cells apart
    table: DataFrame
    varying: tuple[str, ...]  # fields in which it differs from other groups of the store

    @property
    def label(self) -> str:
        """The title, and what else tells it from the others."""
        return self.title + "".join(f" {name}={self.fields[name]}" for name in self.varying if name in self.fields)


def group_runs(table: DataFrame) -> list[RunGroup]:
    """Split runs by task, vocabulary, model and training.

    Of a model without D and N, such as a module of one's own, all whole numbers among its fields count as sizes.
    """
    if table.empty:
        return []
    fixed = [name for name in fields_of(table) if name not in (*SIZES, *FOLLOWING, "seed")]
    key = table[fixed].astype(object).where(table[fixed].notna(), None)
    free = ~_has_dimensions(table)
    key.loc[free, [name for name in fixed if name in _own_sizes(table[free])]] = None
    key = key.map(str)
    varying = tuple(name for name in fixed if name not in _FIRST and key[name].nunique() > 1)
    found = []
    for _, members in key.groupby(fixed):
        mine = table.loc[members.index].dropna(axis="columns", how="all")
        (first,) = rows_of(table.loc[members.index[:1], fixed])
        shared = {name: first[name] for name in fixed if members[name].iloc[0] != "None"}
        title = f"{str(shared['task']).upper()} V={shared['vocab_size']} {shared['model']}"
        found.append(RunGroup(title, shared, _axes(mine), mine, varying))
    return found


def _has_dimensions(table: DataFrame) -> Series:
    return table.reindex(columns=D_N).notna().all(axis=1)


def _own_sizes(table: DataFrame) -> list[str]:
    """Whole numbers among the fields of models that have no D and N."""
    return [name for name in fields_of(table) if name not in _NO_SIZES and is_integer_dtype(table[name])]


def _axes(table: DataFrame) -> tuple[str, ...]:
    """Sizes that vary, D and N where there are such; lengths and residuals only where they do not follow from those."""
    always = D_N if _has_dimensions(table).all() else ()
    sizes = [name for name in (SIZES if always else dict.fromkeys((*SIZES, *_own_sizes(table)))) if name in table]
    axes = [name for name in sizes if name in always or table[name].nunique(dropna=False) > 1] or ["num_facts"]
    for name in FOLLOWING:
        if name in table and (table.groupby(axes, dropna=False)[name].nunique(dropna=False) > 1).any():
            axes.append(name)
    return tuple(axes)


# Two columns against each other


@dataclass(frozen=True)
class Points:
    """The runs of one group: a point each, and the mean of y at every x if y is a number."""

    group: Value
    x: tuple[Value, ...]
    y: tuple[Value, ...]
    means: tuple[tuple[Value, float], ...]


def split_by(table: DataFrame, name: str | None) -> dict[Value, DataFrame]:
    """The rows by the values of a column, in order; all under None without one."""
    if name is None:
        return {None: table}
    values = Series(values_of(table[name]), table.index, object)
    return {value: table[values.isna() if value is None else values == value] for value in sorted_values(values)}


def points_by(table: DataFrame, x: str, y: str, group: str | None = None) -> list[Points]:
    """Points per value of `group`, in order; runs that lack x or y are left out."""
    found = []
    for value, mine in split_by(table.dropna(subset=[x, y]), group).items():
        xs, ys = values_of(mine[x]), values_of(mine[y])
        means: tuple[tuple[Value, float], ...] = ()
        if all_numbers(ys):
            means = tuple((place, float(mine[y][mine[x] == place].mean())) for place in sorted_values(xs))
        found.append(Points(value, tuple(xs), tuple(ys), means))
    return found


def also_varying(table: DataFrame, columns: Sequence[str]) -> list[str]:
    """Fields besides these columns and the seed in which the runs differ, those of training last."""
    names = {*varying_columns(table)} - {*columns, "seed"}
    return sorted(names, key=lambda name: (name in TrainSpec.model_fields, name not in SIZES, name))


def all_numbers(values: Iterable[Value]) -> bool:
    """Whether these are numbers, and not yes or no."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def sorted_values(values: Iterable[Any]) -> list[Value]:
    """Distinct values: numbers by size, then texts, then nothing."""
    return sorted(
        dict.fromkeys(values),
        key=lambda v: (v is None, isinstance(v, str), v if isinstance(v, int | float) else 0, str(v)),
    )
