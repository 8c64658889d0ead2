"""Looking after a store: find what is damaged, remove what nobody needs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
from dataclasses import dataclass, field
from pathlib import Path

from recallscope.records import NewerRecordError, RecordError, record_from
from recallscope.runs.attempts import read_failure
from recallscope.runs.index import INDEX, Entry, entry_of, open_index, rebuild_index
from recallscope.runs.leases import CLOCK, is_leased, lease_files
from recallscope.runs.store import (
    CHECKPOINT,
    FAILURE,
    HALF_WRITTEN,
    RECORD,
    VERSION,
    WEIGHTS,
    Fault,
    RunStore,
    all_set_aside,
    half_written,
    read_record,
    set_aside,
)


@dataclass
class Health:
    """What `verify` found."""

    done: int = 0  # with a record that this installation understands
    failed: int = 0
    running: int = 0
    begun: int = 0  # started, neither finished nor running: a sweep resumes them
    faults: list[Fault] = field(default_factory=list)
    newer: list[str] = field(default_factory=list)  # sound records that need another version, or code that is not here
    former: int = 0  # records under names of the first rule, which `store migrate` renames
    index_was_wrong: bool = False
    set_aside_before: int = 0

    @property
    def clean(self) -> bool:
        """No file is damaged. Runs not yet finished, and records that need another version, are no fault."""
        return not self.faults


def verify(store: RunStore, *, move: bool = True) -> Health:
    """Read every file of the store; what is damaged or half written is named and, with `move`, moved aside."""
    health = Health(set_aside_before=len(all_set_aside(store.root)))
    entries: list[Entry] = []
    for name in store.folders():
        folder = store.runs / name
        if not folder.is_dir():
            _fault(store, health, folder, "a file where the folder of a run should be", move)
            continue
        leased = is_leased(folder)
        state = "running" if leased else "begun"
        try:
            facts = read_record(folder)
            if facts is not None:
                entries.append(entry_of(facts))
                health.former += facts["schema_version"] == 1
                state = "done"
                record_from(facts)
        except NewerRecordError as error:
            health.newer.append(str(error))
            state = ""
        except (RecordError, OSError) as error:
            _fault(store, health, folder / RECORD, str(error), move)
        if state in ("running", "begun") and (folder / FAILURE).exists():
            try:
                read_failure(folder / FAILURE)
                state = "failed"
            except (ValueError, OSError) as error:
                _fault(store, health, folder / FAILURE, str(error), move)
        for tensors in (WEIGHTS, CHECKPOINT):
            if (folder / tensors).exists() and (wrong := safetensors_fault(folder / tensors)):
                _fault(store, health, folder / tensors, wrong, move)
        for path in half_written(folder) if not leased else ():
            _fault(store, health, path, HALF_WRITTEN, move)
        if state:
            setattr(health, state, getattr(health, state) + 1)
    health.index_was_wrong = _index_differs(store, entries)
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
    """Remove leftovers of finished runs and, if asked, what was moved aside; returns names and bytes.

    Records, weights, logs and the checkpoints of unfinished runs are never touched.
    """
    found: list[Path] = []
    for name in store.folders():
        folder = store.runs / name
        if (folder / RECORD).exists():
            found += [path for path in (folder / CHECKPOINT, folder / FAILURE, folder / CLOCK) if path.exists()]
            found += lease_files(folder)
        elif folder.is_dir() and not os.listdir(folder):
            found.append(folder)
    if damaged:
        found += all_set_aside(store.root)
    sizes = [(str(path.relative_to(store.root)), _size(path)) for path in found]
    for path in found if not dry_run else ():
        if path.parent == store.runs:
            with contextlib.suppress(OSError):  # no longer empty: someone leases the run this moment
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


def _index_differs(store: RunStore, entries: list[Entry]) -> bool:
    """Whether the index says anything else than the files just read; an index that is not there is not wrong."""
    if not (store.root / INDEX).exists():
        return False
    try:
        with open_index(store) as table:
            query = "SELECT folder, row FROM now"
            indexed = {folder: table.decode(row) for folder, row in table.connection.execute(query)}
    except (sqlite3.DatabaseError, ValueError):
        return True
    files = {entry.folder: {word: v for word, v in entry.row.items() if v is not None} for entry in entries}
    done = {folder: row for folder, row in indexed.items() if row.get("status") == "done"}
    if store.marker["version"] < VERSION:  # a run that is there under two names is listed once
        files = {folder: row for folder, row in files.items() if folder in done}
    return files != done


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size for file in files)
