"""Bring records of the first schema to today's: a new name for the run, and the old one kept in `formerly`.

Reading never needs this: old records are found as they are. A killed migration is finished by starting it again. The
new record is written first and the old one removed last, so at any moment at least one of them is whole.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recallscope.atomic import flush_folder, write_atomically
from recallscope.records import RecordError, RunRecord, read_facts, record_from, record_text
from recallscope.runs.index import rebuild_index
from recallscope.runs.leases import drop_leases, is_leased
from recallscope.runs.store import (
    CHECKPOINT,
    DAMAGED,
    FAILURE,
    RECORD,
    VERSION,
    RunStore,
    StoreError,
    name_in,
    read_record,
    set_aside,
    write_marker,
)


@dataclass
class Migration:
    """What became of a store's records of the first schema."""

    renamed: list[tuple[str, str]] = field(default_factory=list)  # former name, name of today
    left: list[tuple[str, str]] = field(default_factory=list)  # folder, why it was left as it is


def migrate(store: RunStore, *, dry_run: bool = False) -> Migration:
    """Rewrite every record of the first schema that a spec can be made of; whatever else there is stays."""
    leased = [name for name in store.folders() if is_leased(store.runs / name, look_only=dry_run)]
    if leased and not dry_run:
        raise StoreError(
            f"{len(leased)} runs of {store.root} are being worked on, such as {leased[0]}. Stop the sweep, or wait for "
            f"its end, and migrate then."
        )
    done = Migration()
    for name in store.folders():
        folder = store.runs / name
        try:
            facts = read_record(folder)
            if facts is None:
                _leave_unfinished(folder, done, dry_run, first=store.marker["version"] == 1)
                continue
            if facts["schema_version"] > 1:
                continue
            record = record_from(facts)
        except RecordError as error:  # damaged, or of an architecture that is not here
            done.left.append((name, str(error)))
            continue
        there = read_record(store.home(record.run))
        if there is not None and name not in there.get("formerly", []):
            done.left.append((name, f"run {record.run}, its name of today, has a record of its own"))
            continue
        if not dry_run:
            _move(store, folder, facts, record, written=there is not None)
        done.renamed.append((name, record.run))
    if not dry_run:
        if not any(_is_first_schema(store.runs / name) for name, _ in done.left):
            store.marker = {**store.marker, "version": VERSION}
            write_marker(store.root, store.marker)
        if done.renamed:
            rebuild_index(store)
    return done


def migrate_file(path: Path, *, dry_run: bool = False) -> Migration:
    """The same for a record outside a store, in its place."""
    facts = read_facts(path.read_bytes())
    if facts["schema_version"] > 1:
        return Migration()
    record = record_from(facts)
    if not dry_run:
        write_atomically(path, _text(facts, record))
    return Migration(renamed=[(facts["run"], record.run)])


def _move(store: RunStore, folder: Path, facts: dict[str, Any], record: RunRecord, *, written: bool) -> None:
    """Write the new record, move the other files after it, remove the old record last."""
    home = store.home(record.run)
    if not written:
        write_atomically(home / RECORD, _text(facts, record))
    drop_leases(folder)
    for path in sorted(folder.iterdir()):
        if path.name == RECORD:
            continue
        if (home / path.name).exists():
            set_aside(store.root, path, f"{home.relative_to(store.root)} has a file of this name")
        else:
            os.rename(path, home / path.name)
    flush_folder(home)
    for path in _files_named(store.root, folder.name):
        os.rename(path, path.with_name(path.name.replace(folder.name, record.run)))
    (folder / RECORD).unlink()
    folder.rmdir()


def _files_named(root: Path, run: str) -> list[Path]:
    """Files about a run elsewhere in the store, such as inside/RUN.json or trackers/NAME/RUN."""
    found = [*root.glob(f"*/{run}*"), *root.glob(f"*/*/{run}*")]
    return [path for path in found if path.relative_to(root).parts[0] not in ("runs", DAMAGED)]


def _leave_unfinished(folder: Path, done: Migration, dry_run: bool, *, first: bool) -> None:
    names = set(os.listdir(folder)) if folder.is_dir() else set()
    if not names and folder.is_dir():  # what a killed migration leaves at the very end
        if not dry_run:
            folder.rmdir()
    elif CHECKPOINT in names and first:
        reason = "unfinished: its checkpoint cannot be continued if the run was begun under its former name"
        done.left.append((folder.name, reason))
    elif FAILURE in names and name_in(folder) not in (None, folder.name):
        done.left.append((folder.name, "failed, and its note stays under this name"))


def _is_first_schema(folder: Path) -> bool:
    try:
        facts = read_record(folder)
        return facts["schema_version"] == 1 if facts else name_in(folder) not in (None, folder.name)
    except RecordError:
        return False


def _text(facts: dict[str, Any], record: RunRecord) -> bytes:
    """The record in today's schema; what is unknown in it is kept."""
    known = record.model_dump(mode="json")
    return record_text({**known, **{name: value for name, value in facts.items() if name not in known}})
