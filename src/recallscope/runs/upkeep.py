"""Looking after a store: find what is damaged, and set it aside; pack it into one file, and unpack it.

Links are not followed: a run's folder that is one is named and left alone, as what it leads to may be no part of the
store.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from recallscope.atomic import TEMPORARY, digest_of, open_regular, seal_is_broken, write_atomically
from recallscope.records import NewerRecordError, RecordError, file_text, record_from
from recallscope.runs.index import Entry, entry_of, index_contradicts, rebuild_index
from recallscope.runs.leases import is_leased, read_failure
from recallscope.runs.packed import packed_line
from recallscope.runs.store import (
    CHECKPOINT,
    FAILURE,
    HALF_WRITTEN,
    RECORD,
    WEIGHTS,
    Fault,
    RunStore,
    StoreError,
    all_set_aside,
    half_written,
    set_aside,
)


@dataclass
class StoreCheck:
    """What `verify` found."""

    done: int = 0  # with a record that this installation understands
    failed: int = 0
    running: int = 0
    begun: int = 0  # started, neither finished nor running: a sweep resumes them
    faults: list[Fault] = field(default_factory=list)
    newer: list[str] = field(default_factory=list)  # sound records that need another version, or code that is not here
    links: list[str] = field(default_factory=list)  # folders of runs that are links, which are not followed
    without_digest: int = 0  # sound records of earlier versions: whether they were edited cannot be known
    index_was_wrong: bool = False
    set_aside_before: int = 0

    @property
    def clean(self) -> bool:
        """No file is damaged. Runs not yet finished, and records that need another version, are no fault."""
        return not self.faults

    def lines(self, store: Path, *, moved: bool) -> list[str]:
        """One line per fault, then the counts; `moved`: whether damaged files were set aside."""
        lines = [
            f"damaged: {fault.path}: {fault.reason}" + (f"; set aside as {fault.moved_to}" if fault.moved_to else "")
            for fault in self.faults
        ]
        lines += [f"not read: {reason}" for reason in self.newer]
        lines += [f"not followed: {name} is a link" for name in self.links]
        if self.index_was_wrong:
            lines.append("the index did not agree with the files" + (" and was made anew" if moved else ""))
        counts = f"{self.done} done, {self.failed} failed, {self.running} running, {self.begun} begun"
        counts += f", {len(self.newer)} that need another version" if self.newer else ""
        lines.append(f"{counts}: " + ("clean" if self.clean else f"{len(self.faults)} damaged"))
        if self.without_digest:
            lines.append(
                f"{self.without_digest} of an earlier version have no digest: whether they were edited is unknown"
            )
        if self.set_aside_before:
            place = store / "damaged"
            lines.append(f"{self.set_aside_before} files set aside earlier are in {place}, each with a note")
        return lines


def verify(store: RunStore, *, move: bool = True) -> StoreCheck:
    """Read every file of the store; what is damaged or half written is named and, with `move`, moved aside.

    Without `move` nothing is written at all. A packed record that is damaged stays where it is.
    """
    move = move and not store.read_only
    health = StoreCheck(set_aside_before=len(all_set_aside(store.root)))
    entries: list[Entry] = []
    for name in store.names():
        folder = store.runs / name
        if folder.is_symlink():
            health.links.append(str(folder.relative_to(store.root)))
        elif folder.exists() and not folder.is_dir():
            _fault(store, health, folder, "a file where the folder of a run should be", move)
        else:
            _verify_folder(store, folder, health, entries, move)
    health.index_was_wrong = index_contradicts(store, entries)
    if health.index_was_wrong and move:
        rebuild_index(store)
    return health


def _verify_folder(store: RunStore, folder: Path, health: StoreCheck, entries: list[Entry], move: bool) -> None:
    leased = is_leased(folder, look_only=not move)
    state, facts = "running" if leased else "begun" if folder.exists() else "", None
    try:
        facts = _settled(folder / RECORD, lambda: store.facts(folder.name), RecordError)
        if facts is not None:
            entries.append(entry_of(facts))
            health.without_digest += "digest" not in facts
            state = "done"
            record_from(facts)
    except NewerRecordError as error:
        health.newer.append(str(error))
        state = ""
    except (RecordError, OSError) as error:
        if (folder / RECORD).exists():
            _fault(store, health, folder / RECORD, str(error), move)
        else:
            health.faults.append(Fault(store.place(folder.name), str(error)))
    if state in ("running", "begun") and (folder / FAILURE).exists():
        try:
            _settled(folder / FAILURE, lambda: read_failure(folder / FAILURE), ValueError)
            state = "failed"
        except (ValueError, OSError) as error:
            _fault(store, health, folder / FAILURE, str(error), move)
    digests = {WEIGHTS: (facts or {}).get("weights_digest"), CHECKPOINT: None}
    for name, digest in digests.items():
        if (folder / name).exists() and (wrong := safetensors_fault(folder / name, digest)):
            _fault(store, health, folder / name, wrong, move)
    for path in half_written(folder) if not leased else ():
        _fault(store, health, path, HALF_WRITTEN, move)
    if state:
        setattr(health, state, getattr(health, state) + 1)


def _settled(path: Path, read: Callable[[], Any], damage: type[Exception]) -> Any:
    """What a file says, or why it is damaged: the same after a second look if another took its place meanwhile."""
    while True:
        before = _identity(path)
        try:
            return read()
        except damage:
            if _identity(path) == before:
                raise


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Tells a file from one that took its place; None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def safetensors_fault(path: Path, digest: str | None = None) -> str | None:
    """What is wrong with a safetensors file, read without its library; None if nothing is, or if it is gone.

    Its header must describe just these bytes, and they must be those of the digest: of the one given or, if there is
    none, of the one in the header. A sweep may replace the file meanwhile: all is judged by one open file, and if that
    is found wrong and is no longer the one of this name, the new one is judged.
    """

    def judge() -> None:
        with contextlib.suppress(FileNotFoundError), open(open_regular(path), "rb") as file:
            wrong = _tensors_fault(file, digest)
            if wrong:
                raise ValueError(wrong)

    try:
        _settled(path, judge, ValueError)
    except (ValueError, OSError) as error:
        return str(error)
    return None


def _tensors_fault(file: IO[bytes], digest: str | None) -> str | None:
    size = os.fstat(file.fileno()).st_size
    try:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if size < 8 or length > size - 8:
            return f"cut off: {size} bytes, and the header alone needs {8 + length}"
        text = file.read(length)
        header = json.loads(text)
        ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        expected = 8 + length + max(ends, default=0)
        metadata = dict(header.get("__metadata__", {}))
    except (ValueError, RecursionError, AttributeError, KeyError, TypeError, IndexError) as error:
        return f"not a safetensors file: {error}"
    if expected != size:
        return f"{size} bytes, and its header describes {expected}"
    data = start + text + file.read()
    intact = digest_of(data) == digest if digest is not None else not seal_is_broken(data, metadata)
    return None if intact else "changed since it was written: its digest does not fit"


def _fault(store: RunStore, health: StoreCheck, path: Path, reason: str, move: bool) -> None:
    fault = set_aside(store.root, path, reason) if move else Fault(str(path.relative_to(store.root)), reason)
    if fault:
        health.faults.append(fault)


@dataclass
class Copied:
    """How many records were copied, and what was left out."""

    runs: int = 0
    weights: int = 0
    unfinished: int = 0  # runs without a record, failed ones included
    damaged: int = 0


def pack_store(store: RunStore, path: Path | str) -> Copied:
    """Write all records of a store into one file, in order of name; the same records always give the same bytes.

    A packed store of this name is replaced; any other file is not, with a StoreError.
    """
    path = Path(path)
    if path.exists():
        try:
            packed = RunStore(path).read_only
        except StoreError:
            packed = False
        if not packed:
            raise StoreError(f"{path} exists and is not a packed store. Name another file, or move it away.")
    copied = Copied()
    lines = [packed_line(facts) for facts in _records(store, copied)]
    header = store.marker | {"runs": copied.runs, "weights": copied.weights}
    write_atomically(path, b"".join([packed_line(header), *lines]))
    return copied


def unpack_store(store: RunStore, folder: Path | str) -> Copied:
    """Write all records of a store as a folder of files, each as it was before it was packed. All or nothing.

    StoreError if the folder has any files.
    """
    folder, copied = Path(folder), Copied()
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise StoreError(f"{folder} exists and is not an empty folder. Name a new one.")
    beside = folder.absolute().with_name(f".{folder.name}.{uuid.uuid4().hex[:12]}{TEMPORARY}")
    try:
        (beside / "runs").mkdir(parents=True)
        for facts in _records(store, copied):
            (beside / "runs" / facts["run"]).mkdir()
            (beside / "runs" / facts["run"] / RECORD).write_bytes(file_text(facts))
        marker = {name: value for name, value in store.marker.items() if name not in ("runs", "weights")}
        (beside / "store.json").write_text(json.dumps(marker) + "\n", encoding="utf-8")
        os.replace(beside, folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return copied


def _records(store: RunStore, copied: Copied) -> Iterator[dict[str, Any]]:
    """All sound records as plain data, in order of name; counts them and the rest."""
    for run in store.names():
        copied.weights += (store.folder(run) / WEIGHTS).exists()
        try:
            facts = store.facts(run)
        except RecordError:
            copied.damaged += 1
            continue
        if facts is None:
            copied.unfinished += 1
        else:
            copied.runs += 1
            yield facts
