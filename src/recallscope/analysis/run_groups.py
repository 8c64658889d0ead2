"""Split runs into groups of one task and one kind of model, trained alike: only sizes and seeds differ in a group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from recallscope.analysis.accuracy_grid import Row, row_of, words_of
from recallscope.records import RunRecord
from recallscope.specs import TrainSpec, Value

DIMENSIONS = ("embed_dim", "state_dim")
SIZES = ("num_facts", *DIMENSIONS, "num_layers", "num_heads")
FOLLOWING = ("length", "residual")  # follow from the sizes as a rule
NO_SIZES = {"vocab_size", "key_repeats", "seed", *FOLLOWING, *TrainSpec.model_fields}


@dataclass(frozen=True)
class RunGroup:
    """Runs that one fit may take together."""

    label: str
    words: dict[str, Value]  # that all runs share
    axes: tuple[str, ...]  # that tell its cells apart
    rows: tuple[dict[str, Any], ...]


def group_runs(runs: Iterable[RunRecord | Row]) -> list[RunGroup]:
    """Split runs by task, vocabulary, model and training. A label names task, V and model, and what else differs.

    Of a model without D and N, such as a module of one's own, all whole numbers among its fields count as sizes.
    """
    rows = [row_of(run) for run in runs]
    names = dict.fromkeys(name for row in rows for name in words_of(row))
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
        words: dict[str, Value] = {name: value for name, value in zip(fixed, key, strict=True) if value is not None}
        more = "".join(f" {name}={words[name]}" for name in telling if name in words)
        label = f"{str(words['task']).upper()} V={words['vocab_size']} {words['model']}{more}"
        found.append(RunGroup(label, words, _axes(members), tuple(members)))
    return found


def _sizes(row: Row) -> tuple[str, ...]:
    """The words of a run that are sizes of its model or task."""
    if all(name in row for name in DIMENSIONS):
        return SIZES
    own = (name for name in words_of(row) if type(row.get(name)) is int and name not in NO_SIZES)
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
