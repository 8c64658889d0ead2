"""What the explorer may show: the stores and weights it was started with, by number, and nothing else on the disk."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict

from recallscope.records import is_run_name
from recallscope.runs.store import WEIGHTS, RunStore
from recallscope.runs.table import find_runs, parse_conditions
from recallscope.theory.law import DIMENSIONS
from recallscope.theory.problem import SIZES

T = TypeVar("T")
MOST_KEPT = 256  # answers that are kept


class Query(BaseModel):
    """Base of the questions: fields of an address or of a JSON body. Unknown ones are refused, empty ones left out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(cls: type[T], fields: Mapping[str, Any]) -> T:
        """The question of these fields."""
        given = {name: value for name, value in fields.items() if value != ""}
        return cls.model_validate(given)  # type: ignore[attr-defined]


@dataclass(eq=False)
class StoreSet:
    """The stores, the weights beside them, and answers that took long, kept until their store changes."""

    stores: list[RunStore] = field(default_factory=list)
    weights: list[Path] = field(default_factory=list)
    trust_code: bool = False  # import the code that a weights file names, if it names any
    _kept: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    _locks: dict[tuple[Any, ...], Lock] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)  # of the two above

    def store(self, number: int) -> RunStore:
        """One of the stores."""
        if not 0 <= number < len(self.stores):
            some = f"0 to {len(self.stores) - 1}" if self.stores else "none: start with --store DIR"
            raise ValueError(f"store={number}: there are {some}.")
        return self.stores[number]

    def weights_of(self, store: RunStore, run: str) -> Path:
        """The weights of a run. A link that leads out of the store is not followed."""
        path = store.folder(run) / WEIGHTS if is_run_name(run) else Path()
        if not path.is_file() or not path.resolve().is_relative_to(store.root.resolve()):
            raise ValueError(f"run {run[:24]!r} has no weights in {store.root}.")
        return path

    def kept(self, store: RunStore, key: tuple[Any, ...], make: Callable[[], T]) -> T:
        """An answer made of a store: made once, and again when runs have come or gone; one at a time."""
        whole = (str(store.root), *key)
        with self._lock:
            lock = self._locks.setdefault(whole, Lock())
        with lock:
            now = stamp(store)
            if self._kept.get(whole, (None,))[0] != now:
                value = make()
                with self._lock:
                    self._kept.pop(whole, None)
                    while len(self._kept) >= MOST_KEPT:
                        self._kept.pop(next(iter(self._kept)))
                    self._kept[whole] = (now, value)
                return value
            kept: T = self._kept[whole][1]
            return kept


def stamp(store: RunStore) -> tuple[int, ...]:
    """Changes whenever a run of the store begins, ends or is removed: number and latest time of its folders."""
    times = []
    for place in (store.runs, store.root / "inside"):
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(place) as entries:
            times += [entry.stat(follow_symlinks=False).st_mtime_ns for entry in entries]
    return len(times), max(times, default=0), *store.packed.stamp


def has_torch() -> bool:
    """Whether models can be looked into; asked without loading it."""
    return importlib.util.find_spec("torch") is not None


def all_weights(store_set: StoreSet, fields: dict[str, Any]) -> list[dict[str, Any]]:
    """Models that can be looked into: their names for a question, and what they are."""
    Query.of(fields)
    found = [
        {"model": f"weights:{number}", "title": _short(path.parent)} for number, path in enumerate(store_set.weights)
    ]
    for number, store in enumerate(store_set.stores):
        kept = {name for name in store.names() if (store.runs / name / WEIGHTS).is_file()}
        if kept:
            rows = find_runs(store, parse_conditions(["status=done"]), order_by=None)
            found += [
                {"model": f"run:{number}:{row['run']}", "title": f"{_title(row)} in {_short(store.root)}"}
                for row in rows
                if row["run"] in kept
            ]
    return found


def _short(path: Path) -> str:
    return "/".join(path.parts[-2:])


def _title(row: Mapping[str, Any]) -> str:
    sizes = " ".join(f"{SIZES[name]['letter']} {row[name]}" for name in DIMENSIONS if row.get(name) is not None)
    return f"{row['model']} {sizes}, {row['test_accuracy']:.3f}, run {row['run'][:8]}"
