"""Looking after a store: find what is damaged, remove what nobody needs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from recallscope.records import RecordError
from recallscope.store.attempts import read_failure
from recallscope.store.claims import CLOCK, claim_files, is_live
from recallscope.store.columns import Row, row_of
from recallscope.store.damaged import Fault, all_set_aside, set_aside
from recallscope.store.index import INDEX, find_runs, rebuild_index
from recallscope.store.reading import NewerRecordError
from recallscope.store.run_store import CHECKPOINT, FAILURE, RECORD, WEIGHTS, RunStore


@dataclass
class Health:
    """What `verify` found."""

    done: int = 0
    failed: int = 0
    running: int = 0
    begun: int = 0  # started, neither finished nor running: a sweep goes on with them
    faults: list[Fault] = field(default_factory=list)
    newer: list[str] = field(default_factory=list)  # records only a later version can read
    index_was_wrong: bool = False
    set_aside_before: int = 0

    @property
    def clean(self) -> bool:
        """Every file is whole and readable. Runs not yet finished are no fault."""
        return not self.faults and not self.newer


def verify(store: RunStore, *, move: bool = True) -> Health:
    """Read every file of the store; what is damaged or half written is named and, with `move`, set aside."""
    health = Health(set_aside_before=len(all_set_aside(store.root)))
    rows: dict[str, Row] = {}
    for run in store.names():
        folder = store.folder(run)
        if not folder.is_dir():
            _fault(store, health, folder, "a file where the folder of a run should be", move)
            continue
        live = any(is_live(path) for path in claim_files(folder))
        state = "running" if live else "begun"
        try:
            record = store.get(run)
            if record is not None:
                state, rows[run] = "done", row_of(record)
        except NewerRecordError as error:
            health.newer.append(str(error))
            continue
        except (RecordError, OSError) as error:
            _fault(store, health, folder / RECORD, str(error), move)
        if state != "done" and (folder / FAILURE).exists():
            try:
                rows[run] = row_of(read_failure(folder / FAILURE))
                state = "failed"
            except (ValueError, OSError) as error:
                _fault(store, health, folder / FAILURE, str(error), move)
        for name in (WEIGHTS, CHECKPOINT):
            if (folder / name).exists() and (wrong := safetensors_fault(folder / name)):
                _fault(store, health, folder / name, wrong, move)
        if not live:
            for path in store.half_written(run):
                _fault(store, health, path, "half written: its writer was killed", move)
        setattr(health, state, getattr(health, state) + 1)
    health.index_was_wrong = _index_differs(store, rows)
    if health.index_was_wrong and move:
        rebuild_index(store)
    return health


def safetensors_fault(path: Path) -> str | None:
    """What is wrong with a safetensors file, read without its library: the header must describe just these bytes."""
    try:
        size = path.stat().st_size
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                return f"cut off: {size} bytes, and the header alone needs {8 + length}"
            header = json.loads(file.read(length))
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        expected = 8 + length + max(ends, default=0)
    except (OSError, ValueError, RecursionError, AttributeError, KeyError, TypeError, IndexError) as error:
        return f"not a safetensors file: {error}"
    return None if expected == size else f"{size} bytes, and its header describes {expected}"


def collect_garbage(store: RunStore, *, damaged: bool = False, dry_run: bool = False) -> list[tuple[str, int]]:
    """Remove what finished runs left over and, if asked, what was set aside; returns names and bytes.

    Records, weights, logs and the checkpoints of unfinished runs are never touched.
    """
    found: list[Path] = []
    for run in store.names():
        folder = store.folder(run)
        if (folder / RECORD).exists():
            found += [path for path in (folder / CHECKPOINT, folder / FAILURE, folder / CLOCK) if path.exists()]
            found += claim_files(folder)
        elif folder.is_dir() and not os.listdir(folder):
            found.append(folder)
    if damaged:
        found += all_set_aside(store.root)
    sizes = [(str(path.relative_to(store.root)), _size(path)) for path in found]
    if not dry_run:
        for path in found:
            if path.parent == store.runs:
                with contextlib.suppress(OSError):  # no longer empty: someone claims the run this moment
                    path.rmdir()
            elif path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
    return sizes


def _fault(store: RunStore, health: Health, path: Path, reason: str, move: bool) -> None:
    fault = set_aside(store.root, path, reason) if move else Fault(str(path.relative_to(store.root)), reason)
    if fault:
        health.faults.append(fault)


def _index_differs(store: RunStore, rows: dict[str, Row]) -> bool:
    """Whether the index says anything else than the files just read; an index that is not there is not wrong."""
    if not (store.root / INDEX).exists():
        return False
    try:
        indexed = {row["run"]: tuple(row.values()) for row in find_runs(store)}
    except (sqlite3.DatabaseError, ValueError):
        return True
    return indexed != rows


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)
