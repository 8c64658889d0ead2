"""Runs: the rows of a store, one run in full, groups of runs with laws over them, and a sweep as it goes."""

from __future__ import annotations

import json
import os
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Annotated, Any

import numpy as np
from pydantic import Field
from starlette.responses import Response

from recallscope.analysis.collapse import collapse_curve, fit_group
from recallscope.analysis.table import RunGroup, as_table, fields_of, finished_runs, group_runs, varying_columns
from recallscope.runs.leases import is_leased
from recallscope.runs.store import CHECKPOINT, FAILURE, RECORD, RunStore
from recallscope.runs.table import csv_bytes, find_runs, parse_conditions, run_details
from recallscope.theory.law import TRAINED_LAW, find_law
from recallscope.web.store_set import Query, StoreSet

MOST_ROWS = 5000  # that a page can sort
MOST_HEADER = 1 << 20  # bytes of a checkpoint's header
FRESH = 0.9  # seconds for which a look at a store is good
SHOWN = ("run", "task", "vocab_size", "num_facts", "length", "model", "embed_dim", "state_dim", "num_layers", "seed")
LAST = ("status", "test_accuracy", "parameters", "state_entries", "seconds", "warning", "needs")


class StoreQuery(Query):
    """One of the stores, by its number."""

    store: Annotated[int, Field(ge=0)] = 0


class RowsQuery(StoreQuery):
    """Rows that satisfy some conditions, such as state_dim<=16, model=linear_mamba."""

    where: Annotated[str, Field(max_length=500)] = ""


class RunQuery(StoreQuery):
    """One run; the first digits of its name will do."""

    run: Annotated[str, Field(min_length=1, max_length=24, pattern="^[0-9a-f]+$")]


class GroupQuery(StoreQuery):
    """A group of runs by its number, and the law that is drawn over it."""

    group: Annotated[int, Field(ge=0)] = 0
    law: Annotated[str, Field(max_length=80)] = TRAINED_LAW


def rows(store_set: StoreSet, flat: dict[str, Any]) -> dict[str, Any]:
    """All rows of a store, as lists by column; columns in which no two rows differ are told once."""
    question = RowsQuery.of(flat)
    found = find_runs(
        store_set.store(question.store), parse_conditions([question.where]), order_by=None, limit=MOST_ROWS + 1
    )
    more, found = len(found) > MOST_ROWS, found[:MOST_ROWS]
    table = as_table(found)
    fields = sorted(fields_of(table), key=lambda name: SHOWN.index(name) if name in SHOWN else len(SHOWN))
    differing = fields if len(found) == 1 else set(varying_columns(table))
    results = (name for name in LAST if any(row.get(name) not in (None, "") for row in found))
    columns = ["run", *(name for name in fields if name in differing), *results]
    alike = {name: found[0][name] for name in fields if name not in differing}
    return {"columns": columns, "alike": alike, "rows": [[row[name] for name in columns] for row in found],
            "more": more}  # fmt: skip


def rows_csv(store_set: StoreSet, fields: dict[str, Any]) -> Response:
    """The same as `store export`, all columns."""
    question = RowsQuery.of(fields)
    data = csv_bytes(find_runs(store_set.store(question.store), parse_conditions([question.where])))
    return Response(data, media_type="text/csv", headers={"content-disposition": 'attachment; filename="runs.csv"'})


def one_run(store_set: StoreSet, fields: dict[str, Any]) -> dict[str, Any]:
    """All there is about a run, as `store show` tells it."""
    question = RunQuery.of(fields)
    return run_details(store_set.store(question.store), question.run)


def _groups(store_set: StoreSet, number: int) -> list[RunGroup]:
    """Groups of runs that one fit may take together, the largest first."""
    store = store_set.store(number)

    def make() -> list[RunGroup]:
        return sorted(group_runs(finished_runs(store)), key=lambda group: -len(group.table))

    return store_set.kept(store, ("groups",), make)


def groups(store_set: StoreSet, fields: dict[str, Any]) -> list[dict[str, Any]]:
    """The groups of a store: what each is, in the fields that tell it from others of its task and model."""
    found = _groups(store_set, StoreQuery.of(fields).store)
    rows = []
    for group in found:
        others = [other.fields for other in found if other.title == group.title]
        varying = [name for name in group.fields if len({str(other.get(name)) for other in others}) > 1]
        more = ", ".join(f"{name}={group.fields[name]}" for name in varying)
        rows.append({"title": group.title, "more": more, "runs": len(group.table), "axes": group.axes})
    return rows


def one_group(store_set: StoreSet, fields: dict[str, Any]) -> dict[str, Any]:
    """The grid of a group as `fit` has it, the collapse onto one variable, and a law on the same cells."""
    question = GroupQuery.of(fields)
    found, law = _groups(store_set, question.store), find_law(question.law)
    if question.group >= len(found):
        raise ValueError(f"group={question.group}: the store has {len(found)}.")
    group = found[question.group]

    def make() -> dict[str, Any]:
        fitted = fit_group(group, [law], bootstrap=0)
        data = fitted.data | {"runs": len(group.table), "collapse": None}
        if fitted.fits and {"embed_dim", "state_dim"} <= {*group.axes}:
            a = fitted.fits[0].a
            curve = collapse_curve(fitted.grid, a, np.random.default_rng(0), bootstrap=0)
            lines = {"line": curve.line, "printed": curve.printed, "fitted": curve.fitted, "state_dim": curve.group}
            points = {"x": curve.x, "accuracy": curve.accuracy} | lines
            rounded = {name: np.round(values, 5).tolist() for name, values in points.items() if values is not None}
            data["collapse"] = {"a": a} | rounded
        return data

    return store_set.kept(store_set.store(question.store), ("group", group.label, law.name), make)


@dataclass
class Watch:
    """Looks at a store while a sweep writes to it; several listeners share one look."""

    store: RunStore
    _lock: Lock = field(default_factory=Lock)
    _seen: tuple[float, dict[str, Any]] | None = None

    def look(self) -> dict[str, Any]:
        """How many runs are done, failed, running and left, how far the running ones are, and who ended last."""
        with self._lock:
            if self._seen is None or time.monotonic() - self._seen[0] > FRESH:
                self._seen = (time.monotonic(), self._look())
            return self._seen[1]

    def _look(self) -> dict[str, Any]:
        packed = self.store.packed.lines()
        done, failed, running, left = list[tuple[int, str]](), 0, list[dict[str, Any]](), 0
        for name in self.store.names():
            folder = self.store.runs / name
            try:
                done.append((os.stat(folder / RECORD, follow_symlinks=False).st_mtime_ns, name))
            except OSError:
                if name in packed:
                    done.append((0, name))
                elif (folder / FAILURE).exists():
                    failed += 1
                elif is_leased(folder, look_only=True):
                    running.append({"run": name, **_progress(folder / CHECKPOINT)})
                else:
                    left += 1
        latest = [name for _, name in sorted(done)[-5:][::-1]]
        return {"done": len(done), "failed": failed, "running": running[:64], "waiting": left, "latest": latest}


def _progress(checkpoint: Path) -> dict[str, Any]:
    """Step and last accuracy of a run, from the header of its checkpoint; nothing if it has none yet."""
    try:
        with open(checkpoint, "rb") as file:
            (size,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(size, MOST_HEADER)))["__metadata__"]
        facts, identity = json.loads(header["facts"]), json.loads(header["identity"])
        history = facts["history"]
        fields = {**identity.get("task", {}), **identity.get("model", {}), "seed": identity.get("seed", 0)}
        shown = {name: fields[name] for name in SHOWN if name in fields}
        return {"step": facts["step"], "accuracy": history[-1]["accuracy"] if history else None, "fields": shown}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error, RecursionError):
        return {}
