"""A store is a folder; one run is one folder in it, named by the run. Its files are the truth.

STORE/store.json                      says that this is a store
STORE/runs.jsonl                      packed records, if there are any: read-only, and runs/ takes precedence
STORE/runs/RUN/record.json            the result, written whole or not at all
STORE/runs/RUN/weights.safetensors    if asked for
STORE/runs/RUN/failure.json           instead of a record: three tries died, and how
STORE/runs/RUN/checkpoint.safetensors, lease.N, attempts.jsonl   while it runs: its state, leases, log of tries
STORE/damaged/                        what could not be trusted, never deleted
STORE/index.sqlite                    for quick queries; can always be made anew from the files

A store can also be one packed file, which is read-only (`packed`).
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recallscope.atomic import digest_of, flush_folder, is_half_written, link_error, open_regular, write_atomically
from recallscope.records import (
    MOST_BYTES,
    NewerRecordError,
    RecordError,
    RunRecord,
    is_run_name,
    read_facts,
    record_from,
    record_text,
)
from recallscope.runs.leases import (
    LEASE_SECONDS,
    Failure,
    Lease,
    drop_leases,
    is_leased,
    lease_files,
    read_failure,
    try_lease,
)
from recallscope.runs.packed import FORMAT, NO_STAMP, PACKED, PackedRuns, Stamp, packed_marker

VERSION = 2
DAMAGED = "damaged"
RECORD, WEIGHTS, CHECKPOINT, FAILURE = "record.json", "weights.safetensors", "checkpoint.safetensors", "failure.json"
HALF_WRITTEN = "half written: its writer was killed"


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
        """Open the store of a folder or a packed file; `create` makes one of an empty or missing folder."""
        self.root = Path(root)
        self.runs = self.root / "runs"
        self.marker = _open_marker(self.root, create=create)
        self.read_only = self.root.is_file()
        self.packed = PackedRuns(self.root if self.read_only else self.root / PACKED)

    def folder(self, run: str) -> Path:
        """The folder of a run, whether it is there or not."""
        return self.runs / run

    def names(self) -> list[str]:
        """Every run that has a folder, finished or not, or a packed record, in order."""
        try:
            folders = filter(is_run_name, os.listdir(self.runs))
            return sorted({*folders, *self.packed.lines()})
        except (FileNotFoundError, NotADirectoryError):
            return sorted(self.packed.lines())

    def finished_names(self) -> list[str]:
        """Runs that have a record, whatever is in it; quicker than reading them all."""
        packed = self.packed.lines()
        return [run for run in self.names() if run in packed or (self.folder(run) / RECORD).exists()]

    def facts(self, run: str) -> dict[str, Any] | None:
        """The record of a run as plain data, of any schema and architecture; None if it has none.

        RecordError if the file contradicts itself.
        """
        return self.read(run)[0]

    def read(self, run: str) -> tuple[dict[str, Any] | None, Stamp]:
        """The same, with the stamp of what was read: the file in the run's folder, else its packed line."""
        facts, stamp = read_stamped(self.folder(run))
        return (facts, stamp) if facts is not None else self.packed.read(run)

    def place(self, run: str) -> str:
        """Where the record of a run is, for messages."""
        path = self.folder(run) / RECORD
        return self.packed.place(run) if not path.exists() and run in self.packed.lines() else f"runs/{run}/{RECORD}"

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
            fault = Fault(self.place(run), str(error))
            return None, set_aside(self.root, path, fault.reason) if move and path.exists() else fault

    def check_writable(self) -> None:
        """StoreError if this is a packed file."""
        if self.read_only:
            raise StoreError(_read_only(self.root))

    def put(self, record: RunRecord, weights: bytes | None = None) -> bool:
        """Store a result; False if the run has one already, which then stays. Files of the running run are removed.

        If weights are added to a run whose record has another accuracy (trained on another processor, or with other
        random numbers), the record that belongs to the weights replaces it, and the earlier one is moved aside.
        """
        self.check_writable()
        if self.folder(record.run).is_symlink():
            raise link_error(self.folder(record.run))
        folder, before = self.folder(record.run), self.get_sound(record.run)[0]
        if weights is not None and (before is None or not self._has_weights(record.run)):
            if before is not None and before.test_accuracy != record.test_accuracy:
                set_aside(self.root, folder / RECORD, "replaced: trained again to keep weights, with another accuracy")
                before = None
            facts = record if before is None else self.facts(record.run) or before
            write_atomically(folder / WEIGHTS, weights)
            write_atomically(folder / RECORD, record_text(facts, digest_of(weights)))
        elif before is None:
            write_atomically(folder / RECORD, record_text(record))
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
        for name in (FAILURE, CHECKPOINT):
            (self.folder(run) / name).unlink(missing_ok=True)
        drop_leases(self.folder(run))

    def tidy_leftovers(self, run: str) -> None:
        """Tidy a finished run whose worker was killed before it could, unless someone works on it to add weights."""
        folder = self.folder(run)
        if ((folder / CHECKPOINT).exists() or lease_files(folder)) and not is_leased(folder):
            self.tidy(run)

    def lease(self, run: str, lease_seconds: float = LEASE_SECONDS, *, weights: bool = False) -> Lease | None:
        """The right to work on a run; None if another process has it, or the run is finished.

        The record is looked for after taking the lease: meanwhile another may have finished the run. Half-written files
        of a predecessor that was killed are moved aside.
        """
        self.check_writable()
        lease = try_lease(self.folder(run), lease_seconds)
        if lease and self.finished(run, weights=weights):
            drop_leases(self.folder(run))
            return None
        if lease:
            for path in half_written(self.folder(run)):
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

    def add_state(self, run: str, effective_entries: int) -> None:
        """Add the effective state size to a record that has none: that of a user's module is known when measured."""
        facts = read_stamped(self.folder(run))[0]
        if facts is not None and facts.get("effective_entries") is None:
            write_atomically(self.folder(run) / RECORD, record_text(facts | {"effective_entries": effective_entries}))

    def put_failure(self, failure: Failure) -> None:
        """Mark a run as failed; `sweep --retry-failed` tries it again."""
        write_atomically(self.folder(failure.run) / FAILURE, failure.model_dump_json(indent=1).encode() + b"\n")

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


def read_stamped(folder: Path) -> tuple[dict[str, Any] | None, Stamp]:
    """The record in a run's folder as plain data, and the stamp of the very file that was read; None if it has none.

    RecordError if it contradicts itself.
    """
    try:
        if os.path.islink(folder):
            raise link_error(folder)
        with open(open_regular(os.path.join(folder, RECORD)), "rb") as file:
            stamp = stamp_of(os.fstat(file.fileno()))
            facts = read_facts(file.read(MOST_BYTES + 1))
    except (FileNotFoundError, NotADirectoryError):
        return None, NO_STAMP
    except IsADirectoryError as error:
        raise RecordError("a folder, where the record of a run should be a file") from error
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise RecordError(f"{error.strerror}") from error
    if facts["run"] != folder.name:
        raise RecordError(f"it is the record of run {facts['run']}, in the folder of another")
    return facts, stamp


def stamp_of(status: os.stat_result) -> Stamp:
    """Size and time of a file: both are the same only if nobody wrote to it, or someone took pains to hide it."""
    return status.st_size, status.st_mtime_ns


def half_written(folder: Path) -> list[Path]:
    """Files of a run that a killed process left unfinished."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return sorted(Path(entry.path) for entry in entries if is_half_written(entry.name))
    return []


def set_aside(root: Path, path: Path, reason: str) -> Fault | None:
    """Move a file of a store to `damaged/`, with a note beside it; None if another process was quicker."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    for folder in (root / DAMAGED, *[folder for folder in path.parents if folder.is_relative_to(root)][:-1]):
        if folder.is_symlink():
            raise link_error(folder)
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


def _open_marker(root: Path, *, create: bool) -> dict[str, Any]:
    """The marker of a folder or a packed file; `create` makes a store of a new or empty folder."""
    if root.exists() and not root.is_dir():
        return _check_version(root, _packed_marker(root, create=create))
    path, packed = root / "store.json", root / PACKED
    if (root / "runs").is_symlink():
        raise StoreError(f"{root / 'runs'} is a link, and links in a store are not followed. Link {root} itself.")
    if packed.is_symlink() or (packed.exists() and not packed.is_file()):
        raise StoreError(f"{packed} is a link or a folder, and packed records must be a file. Move it away.")
    if not path.exists():
        if not create:
            raise StoreError(
                f"{root} is not a store: it has no store.json. Fill one with: recallscope sweep GRID --store {root}"
            )
        _make_store(root)
    try:
        with open(open_regular(path), "rb") as file:
            marker = json.loads(file.read())
        sound = isinstance(marker, dict) and marker.get("format") == FORMAT and isinstance(marker.get("version"), int)
    except (ValueError, RecursionError):
        sound = False
    if not sound:
        raise StoreError(
            f"{path} is damaged: it should say {FORMAT!r}. Move it away, and the next sweep makes a new one; runs stay."
        )
    return _check_version(root, marker)


def _packed_marker(root: Path, *, create: bool) -> dict[str, Any]:
    """The marker in the first line of a packed file, which cannot be written to."""
    marker = None
    if root.is_file():
        with open(root, "rb") as file:
            marker = packed_marker(file.readline(4096))
    if marker is None or not isinstance(marker.get("version"), int):
        raise StoreError(
            f"{root} is a file, and not a packed store (its first line should have {FORMAT!r}). Name a folder, new or "
            f"made by recallscope sweep, or a file written by recallscope store pack."
        )
    if create:
        raise StoreError(_read_only(root))
    return marker


def _read_only(root: Path) -> str:
    folder = root.with_suffix("")
    return f"{root} is a packed store and read-only. Unpack it to add runs: recallscope store unpack {root} {folder}"


def _check_version(root: Path, marker: dict[str, Any]) -> dict[str, Any]:
    if marker["version"] != VERSION:
        raise StoreError(
            f"{root} is a store of version {marker['version']}, and this recallscope reads version {VERSION} only."
            + (" Upgrade recallscope to read it." if marker["version"] > VERSION else "")
        )
    return dict(marker)


def _make_store(root: Path) -> None:
    others = sorted(path.name for path in root.iterdir()) if root.exists() else []
    if others and "runs" not in others:
        raise StoreError(
            f"{root} holds other files ({', '.join(others[:3])} ...) and is not a store. Name a new or an empty folder."
        )
    (root / "runs").mkdir(parents=True, exist_ok=True)
    marker = {"format": FORMAT, "version": VERSION, "id": uuid.uuid4().hex}
    write_atomically(root / "store.json", (json.dumps(marker) + "\n").encode())
