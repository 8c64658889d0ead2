"""A store is a folder; one run is one folder in it, named by the run. Its files are the truth.

STORE/store.json                      says that this is a store
STORE/runs/RUN/record.json            the result, written whole or not at all
STORE/runs/RUN/weights.safetensors    if asked for
STORE/runs/RUN/failure.json           instead of a record: three tries died, and how
STORE/runs/RUN/checkpoint.safetensors, claim.N, attempts.jsonl   while it runs: its state, leases, log of tries
STORE/damaged/                        what could not be trusted, never deleted
STORE/index.sqlite                    for quick queries; can always be made anew from the files

In stores of version 1 folders may have the name that a run had under the first rule (a hash over all its fields). Runs
are found there by today's names, too; `recallscope store migrate` renames them for good.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from recallscope.atomic import digest_of, flush_folder, is_half_written, write_atomically
from recallscope.records import (
    NewerRecordError,
    RecordError,
    RunRecord,
    is_run_name,
    read_facts,
    record_from,
    record_text,
    todays_name,
)
from recallscope.runs.attempts import Failure, read_failure
from recallscope.runs.leases import LEASE_SECONDS, Lease, drop_leases, is_leased, lease_files, try_lease

FORMAT = "recallscope-store"
VERSION = 2  # from 2 on every folder has its run's name of today
DAMAGED = "damaged"
RECORD, WEIGHTS, CHECKPOINT, FAILURE = "record.json", "weights.safetensors", "checkpoint.safetensors", "failure.json"
HALF_WRITTEN = "half written: its writer was killed"
Stamp = tuple[int, int]  # size of a file in bytes, and its time in nanoseconds
NO_STAMP: Stamp = (-1, -1)


class StoreError(ValueError):
    """A folder that is no store, or a request it cannot answer; the message says which and what to do."""


@dataclass(frozen=True)
class Fault:
    """One damaged file, and where it was moved."""

    path: str  # inside the store
    reason: str
    moved_to: str | None = None  # inside the store; None if it was left where it is


class RunStore:
    """Runs on disk. Many processes may read and work at once; no lock is held, so no crash leaves one behind."""

    def __init__(self, root: Path | str, *, create: bool = False) -> None:
        """Open the store of a folder; `create` makes one of an empty or missing folder."""
        self.root = Path(root)
        self.runs = self.root / "runs"
        self.marker = _open_marker(self.root, create=create)

    def to_pandas(self, *conditions: str) -> Any:
        """A pandas DataFrame: one row per run, one column per field. Conditions are texts, such as "state_dim<=16"."""
        from recallscope.runs.table import to_pandas

        return to_pandas(self, *conditions)

    def home(self, run: str) -> Path:
        """The folder into which a run is written, whether it is there or not."""
        return self.runs / run

    def folder(self, run: str) -> Path:
        """The folder in which a run is found: its home, or the one with its former name if the result is there."""
        home = self.home(run)
        if self.marker["version"] >= VERSION or (home / RECORD).exists() or run not in self._former:
            return home
        former = self.runs / self._former[run]
        return home if (home / FAILURE).exists() and not (former / RECORD).exists() else former

    def folders(self) -> list[str]:
        """Names of all run folders, in order."""
        try:
            return sorted(filter(is_run_name, os.listdir(self.runs)))
        except FileNotFoundError:
            return []

    def names(self) -> list[str]:
        """Every run that has a folder, finished or not, by today's name, in order."""
        today = {folder: run for run, folder in self._former.items()}
        return sorted({today.get(folder, folder) for folder in self.folders()})

    @cached_property
    def _former(self) -> dict[str, str]:
        """Folders with names of the first rule, by today's name of their run; read once, none in newer stores."""
        if self.marker["version"] >= VERSION:
            return {}
        today = {folder: name_in(self.runs / folder) for folder in self.folders()}
        return {run: folder for folder, run in today.items() if run not in (None, folder)}

    def finished_names(self) -> list[str]:
        """Runs that have a record, whatever is in it; quicker than reading them all."""
        return [run for run in self.names() if (self.folder(run) / RECORD).exists()]

    def facts(self, run: str) -> dict[str, Any] | None:
        """The record of a run as plain data, of any schema and architecture; None if it has none.

        RecordError if the file contradicts itself.
        """
        return read_record(self.folder(run))

    def get(self, run: str) -> RunRecord | None:
        """The record of a run with its spec; None if it has none.

        RecordError if the file contradicts itself, NewerRecordError if this installation cannot make a spec of it.
        """
        facts = self.facts(run)
        return None if facts is None else record_from(facts)

    def get_sound(self, run: str, *, move: bool = True) -> tuple[RunRecord | None, Fault | None]:
        """As `get`, with a damaged file moved aside so that the run can be done again."""
        path = self.folder(run) / RECORD
        try:
            return self.get(run), None
        except NewerRecordError:
            raise
        except RecordError as error:
            fault = Fault(str(path.relative_to(self.root)), str(error))
            return None, set_aside(self.root, path, fault.reason) if move else fault

    def put(self, record: RunRecord, weights: bytes | None = None) -> bool:
        """Store a result; False if the run has one already, which then stays. Files of the running run are removed.

        A result under a former name was trained with other random numbers. If weights are added to such a run, its
        record is replaced by the one that belongs to them, and the earlier one is moved aside.
        """
        home, before = self.home(record.run), self.get_sound(record.run)[0]
        if weights is not None and (before is None or not self._has_weights(record.run)):
            if before is not None and before.formerly:
                reason = f"replaced: trained again under its name of today, {record.run}, to keep weights"
                set_aside(self.root, self.folder(record.run) / RECORD, reason)
                record, before = record.model_copy(update={"formerly": before.formerly}), None
            facts = record if before is None else self.facts(record.run) or before
            write_atomically(home / WEIGHTS, weights)
            write_atomically(home / RECORD, record_text(facts, digest_of(weights)))
        elif before is None:
            write_atomically(home / RECORD, record_text(record))
        self.tidy(record.run)
        return before is None

    def result(self, run: str, *, weights: bool = False) -> RunRecord | None:
        """The record of a finished run: sound, and with weights if those are wanted. A damaged one is moved aside."""
        record = self.get_sound(run)[0]
        return None if weights and not self._has_weights(run) else record

    def finished(self, run: str, *, weights: bool = False) -> bool:
        """Whether a run has its result."""
        return self.result(run, weights=weights) is not None

    def tidy(self, run: str) -> None:
        """Remove what a finished run no longer needs."""
        for folder in {self.home(run), self.folder(run)}:
            (folder / FAILURE).unlink(missing_ok=True)
        (self.home(run) / CHECKPOINT).unlink(missing_ok=True)
        drop_leases(self.home(run))

    def tidy_leftovers(self, run: str) -> None:
        """Tidy a finished run whose worker was killed before it could, unless someone works on it to add weights."""
        home = self.home(run)
        if ((home / CHECKPOINT).exists() or lease_files(home)) and not is_leased(home):
            self.tidy(run)

    def lease(self, run: str, lease_seconds: float = LEASE_SECONDS, *, weights: bool = False) -> Lease | None:
        """The right to work on a run; None if another process has it, or the run is finished.

        The record is looked for after taking the lease: meanwhile another may have finished the run. Half-written files
        of a predecessor that was killed are moved aside.
        """
        lease = try_lease(self.home(run), lease_seconds)
        if lease and self.finished(run, weights=weights):
            drop_leases(self.home(run))
            return None
        if lease:
            for path in half_written(self.home(run)):
                set_aside(self.root, path, HALF_WRITTEN)
        return lease

    def failure(self, run: str, *, move: bool = True) -> Failure | None:
        """How a run failed for good, if it did; a damaged note counts as none and is moved aside."""
        path = self.folder(run) / FAILURE
        try:
            return read_failure(path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except ValueError as error:
            if move:
                set_aside(self.root, path, str(error))
            return None

    def put_failure(self, failure: Failure) -> None:
        """Mark a run as failed; `sweep --retry-failed` tries it again."""
        write_atomically(self.home(failure.run) / FAILURE, failure.model_dump_json(indent=1).encode() + b"\n")

    def records(self) -> Iterator[RunRecord]:
        """Every record this installation can make a spec of, in order of name; others are passed over."""
        for run in self.names():
            try:
                record = self.get(run)
            except RecordError:
                continue
            if record is not None:
                yield record

    def _has_weights(self, run: str) -> bool:
        return (self.folder(run) / WEIGHTS).exists()


def read_record(folder: Path) -> dict[str, Any] | None:
    """The record of a run's folder as plain data; None if it has none, RecordError if it contradicts itself."""
    return read_stamped(folder)[0]


def read_stamped(folder: Path) -> tuple[dict[str, Any] | None, Stamp]:
    """The same, with the stamp of the very file that was read."""
    try:
        with open(os.path.join(folder, RECORD), "rb") as file:
            stamp = stamp_of(os.fstat(file.fileno()))
            facts = read_facts(file.read())
    except (FileNotFoundError, NotADirectoryError):
        return None, NO_STAMP
    except IsADirectoryError as error:
        raise RecordError("a folder, where the record of a run should be a file") from error
    if facts["run"] != folder.name:
        raise RecordError(f"it is the record of run {facts['run']}, in the folder of another")
    return facts, stamp


def stamp_of(status: os.stat_result) -> Stamp:
    """Size and time of a file: both are the same only if nobody wrote to it, or someone took pains to hide it."""
    return status.st_size, status.st_mtime_ns


def name_in(folder: Path) -> str | None:
    """Today's name of the run whose record or failure note is in a folder; None if there is neither."""
    try:
        facts = read_record(folder)
        if facts is None:
            note = read_failure(folder / FAILURE)
            facts = {"schema_version": 1, "run": folder.name, "spec": note.spec}
        return todays_name(facts)
    except (OSError, ValueError):
        return None


def half_written(folder: Path) -> list[Path]:
    """Files of a run that a killed process left unfinished."""
    with os.scandir(folder) as entries:
        return sorted(Path(entry.path) for entry in entries if is_half_written(entry.name))


def set_aside(root: Path, path: Path, reason: str) -> Fault | None:
    """Move a file of a store to `damaged/`, with a note beside it; None if another process was quicker."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    place = root / DAMAGED / f"{stamp}-{uuid.uuid4().hex[:8]}"
    place.mkdir(parents=True)
    inside = str(path.relative_to(root))
    note = {"file": inside, "reason": reason, "set_aside": stamp}
    write_atomically(place / "note.json", (json.dumps(note, indent=1) + "\n").encode())
    try:
        os.rename(path, place / path.name)
    except FileNotFoundError:
        (place / "note.json").unlink()
        place.rmdir()
        return None
    flush_folder(path.parent)
    return Fault(inside, reason, str((place / path.name).relative_to(root)))


def all_set_aside(root: Path) -> list[Path]:
    """The folders of `damaged/`, oldest first; links are not followed."""
    place = root / DAMAGED
    if place.is_symlink() or not place.is_dir():
        return []
    return sorted(path for path in place.iterdir() if path.is_dir() and not path.is_symlink())


def write_marker(root: Path, marker: dict[str, Any]) -> None:
    """Write store.json, which makes a folder a store."""
    write_atomically(root / "store.json", (json.dumps(marker) + "\n").encode())


def _open_marker(root: Path, *, create: bool) -> dict[str, Any]:
    """The content of store.json; `create` makes a store of a new or empty folder."""
    path = root / "store.json"
    if root.exists() and not root.is_dir():
        raise StoreError(f"{root} is a file, and a store is a folder. Name a folder, new or made by recallscope sweep.")
    if not path.exists():
        if not create:
            raise StoreError(
                f"{root} is not a store: it has no store.json. Fill one with: recallscope sweep GRID --store {root}"
            )
        _make_store(root)
    try:
        marker = json.loads(path.read_bytes())
        sound = isinstance(marker, dict) and marker.get("format") == FORMAT and isinstance(marker.get("version"), int)
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        raise StoreError(
            f"{path} is damaged: it should say {FORMAT!r}. Move it away, and the next sweep makes a new one; runs stay."
        )
    if marker["version"] > VERSION:
        raise StoreError(
            f"{root} is a store of version {marker['version']}, and this recallscope knows {VERSION}. "
            f"Upgrade recallscope to read it."
        )
    return dict(marker)


def _make_store(root: Path) -> None:
    others = sorted(path.name for path in root.iterdir()) if root.exists() else []
    if others and "runs" not in others:
        raise StoreError(
            f"{root} holds other files ({', '.join(others[:3])} ...) and is not a store. Name a new or an empty folder."
        )
    (root / "runs").mkdir(parents=True, exist_ok=True)
    version = 1 if any((root / "runs").iterdir()) else VERSION  # runs of a lost store.json may have former names
    write_marker(root, {"format": FORMAT, "version": version, "id": uuid.uuid4().hex})
