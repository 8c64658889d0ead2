"""Split runs into groups of one task and one kind of model, trained alike: only sizes and seeds differ in a group."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from recallscope.analysis.accuracy_grid import Row, row_of, words_of
from recallscope.records import RunRecord
from recallscope.specs import Value

SIZES = ("num_facts", "embed_dim", "state_dim", "num_layers", "num_heads")
FOLLOWING = ("length", "residual")  # follow from the sizes as a rule


@dataclass(frozen=True)
class RunGroup:
    """Runs that one fit may take together."""

    label: str
    words: dict[str, Value]  # that all runs share
    axes: tuple[str, ...]  # that tell its cells apart
    rows: tuple[dict[str, Any], ...]


def group_runs(runs: Iterable[RunRecord | Row]) -> list[RunGroup]:
    """Split runs by task, vocabulary, model and training. A label names task, V and model, and what else differs."""
    rows = [row_of(run) for run in runs]
    names = dict.fromkeys(name for row in rows for name in words_of(row))
    fixed = [name for name in names if name not in (*SIZES, *FOLLOWING, "seed")]
    groups: dict[tuple[Value, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(name) for name in fixed), []).append(row)
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


def _axes(rows: list[dict[str, Any]]) -> tuple[str, ...]:
    """Sizes that vary, D and N in any case; lengths and residuals only where they do not follow from those."""
    axes = [name for name in SIZES if len({row.get(name) for row in rows}) > 1 or name in ("embed_dim", "state_dim")]
    for name in FOLLOWING:
        cells: dict[tuple[Any, ...], set[Any]] = {}
        for row in rows:
            cells.setdefault(tuple(row.get(axis) for axis in axes), set()).add(row.get(name))
        if any(len(values) > 1 for values in cells.values()):
            axes.append(name)
    return tuple(axes)
