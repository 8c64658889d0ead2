"""Any two columns of a table of runs as series to plot: points by group, and their means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from recallscope.analysis.rows import SIZES, Row, differing, row_of
from recallscope.specs import TrainSpec, Value


@dataclass(frozen=True)
class Series:
    """The runs of one group: a point each, and the mean of y at every x if y is a number."""

    group: Value
    x: tuple[Value, ...]
    y: tuple[Value, ...]
    means: tuple[tuple[Value, float], ...]


def series_of(rows: Sequence[Row], x: str, y: str, group: str | None = None) -> list[Series]:
    """One series per value of `group`, in order; runs that lack x or y are left out."""
    there = [row for row in rows if row.get(x) is not None and row.get(y) is not None]
    found = []
    for value in sorted_values(row.get(group) if group else None for row in there):
        mine = [row for row in there if (row.get(group) if group else None) == value]
        means = []
        if all_numbers([row[y] for row in mine]):
            for place in sorted_values(row[x] for row in mine):
                means.append((place, float(np.mean([row[y] for row in mine if row[x] == place]))))
        found.append(Series(value, tuple(row[x] for row in mine), tuple(row[y] for row in mine), tuple(means)))
    return found


def also_varying(rows: Sequence[Row], columns: Sequence[str]) -> list[str]:
    """Fields besides these columns and the seed in which the rows differ, those of training last."""
    names = differing([row_of(row) for row in rows]) - {*columns, "seed"}
    return sorted(names, key=lambda name: (name in TrainSpec.model_fields, name not in SIZES, name))


def all_numbers(values: Sequence[Value]) -> bool:
    """Whether these are numbers, and not yes or no."""
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def sorted_values(values: object) -> list[Value]:
    """Distinct values: numbers by size, then texts, then nothing."""
    distinct = dict.fromkeys(values)  # type: ignore[call-overload]
    return sorted(
        distinct, key=lambda v: (v is None, isinstance(v, str), v if isinstance(v, int | float) else 0, str(v))
    )
