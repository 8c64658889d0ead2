"""A folder is the store; one run is one folder in it, named by the content hash of its spec. Its files are the truth.

STORE/store.json                      says that this is a store
STORE/runs/HASH/record.json           the result, written whole or not at all
STORE/runs/HASH/weights.safetensors   if asked for
STORE/runs/HASH/failure.json          instead of a record: three tries died, and how
STORE/runs/HASH/checkpoint.safetensors, claim.N, attempts.jsonl   while it runs; who tried, when and how it went
STORE/damaged/                        what could not be trusted, never deleted
STORE/index.sqlite                    a quick way to ask; can always be made anew from the files
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from recallscope.atomic import is_half_written, write_atomically
from recallscope.records import RecordError, RunRecord
from recallscope.store.attempts import Failure, read_failure
from recallscope.store.claims import LEASE_SECONDS, Claim, drop_claims, try_claim
from recallscope.store.damaged import Fault, set_aside
from recallscope.store.marker import open_marker
from recallscope.store.reading import NewerRecordError, read_record

_RUN_NAME = re.compile("[0-9a-f]{24}")
RECORD, WEIGHTS, CHECKPOINT, FAILURE = "record.json", "weights.safetensors", "checkpoint.safetensors", "failure.json"


class RunStore:
    """Runs on disk. Many may read and work at once; no lock is held, so no crash leaves one behind."""

    def __init__(self, root: Path | str, *, create: bool = False) -> None:
        """Open the store of a folder; `create` makes one of an empty or missing folder."""
        self.root = Path(root)
        self.runs = self.root / "runs"
        self.facts = open_marker(self.root, create=create)

    def folder(self, run: str) -> Path:
        """Where a run lives, whether it is there or not."""
        return self.runs / run

    def names(self) -> list[str]:
        """Every run that has a folder, finished or not, in order."""
        try:
            return sorted(filter(is_run_name, os.listdir(self.runs)))
        except FileNotFoundError:
            return []

    def finished_names(self) -> list[str]:
        """Runs that have a record, whatever is in it; quicker than reading them all."""
        return [run for run in self.names() if (self.folder(run) / RECORD).exists()]

    def get(self, run: str) -> RunRecord | None:
        """The record of a run; None if it has none. RecordError if what is there cannot be trusted."""
        try:
            return read_record(self.folder(run) / RECORD)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def get_sound(self, run: str, *, move: bool = True) -> tuple[RunRecord | None, Fault | None]:
        """As `get`, with damage set aside so that the run can be done again; a newer record is refused, not moved."""
        path = self.folder(run) / RECORD
        try:
            return self.get(run), None
        except NewerRecordError:
            raise
        except RecordError as error:
            fault = Fault(str(path.relative_to(self.root)), str(error))
            return None, set_aside(self.root, path, fault.reason) if move else fault

    def put(self, record: RunRecord, weights: bytes | None = None) -> bool:
        """Keep a result; False if the run has one already, which then stays. What only a running run needs goes."""
        folder = self.folder(record.run)
        if weights is not None and not (folder / WEIGHTS).exists():
            write_atomically(folder / WEIGHTS, weights)
        first = self.get_sound(record.run)[0] is None
        if first:
            write_atomically(folder / RECORD, record.model_dump_json(indent=1).encode() + b"\n")
        self.tidy(record.run)
        return first

    def finished(self, run: str, *, weights: bool = False) -> bool:
        """Whether a run has a sound record, and weights if those are wanted too; damage found here is set aside."""
        return self.get_sound(run)[0] is not None and (not weights or (self.folder(run) / WEIGHTS).exists())

    def tidy(self, run: str) -> None:
        """Remove what a finished run needs no more."""
        folder = self.folder(run)
        for name in (CHECKPOINT, FAILURE):
            (folder / name).unlink(missing_ok=True)
        drop_claims(folder)

    def claim(self, run: str, lease_seconds: float = LEASE_SECONDS, *, weights: bool = False) -> Claim | None:
        """The right to work on a run; None if another has it, or the run is finished.

        The record is looked for after claiming: between an earlier look and now another may have finished the run.
        Half-written files of a predecessor that was killed are set aside.
        """
        claim = try_claim(self.folder(run), lease_seconds)
        if claim and self.finished(run, weights=weights):
            drop_claims(self.folder(run))
            return None
        if claim:
            for path in self.half_written(run):
                set_aside(self.root, path, "half written: its writer was killed")
        return claim

    def half_written(self, run: str) -> list[Path]:
        """Files of a run that a killed process left unfinished."""
        with os.scandir(self.folder(run)) as entries:
            return sorted(Path(entry.path) for entry in entries if is_half_written(entry.name))

    def failure(self, run: str, *, move: bool = True) -> Failure | None:
        """How a run failed for good, if it did; a damaged note counts as none and is set aside."""
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
        """Mark a run as failed; `sweep --retry-failed` takes it up again."""
        write_atomically(self.folder(failure.run) / FAILURE, failure.model_dump_json(indent=1).encode() + b"\n")

    def records(self) -> Iterator[RunRecord]:
        """Every readable record, from the files, in order of name; what is damaged or newer is passed over."""
        for run in self.names():
            try:
                record = self.get(run)
            except RecordError:
                continue
            if record is not None:
                yield record


def is_run_name(name: str) -> bool:
    """24 hex digits, as `content_hash` gives."""
    return _RUN_NAME.fullmatch(name) is not None
