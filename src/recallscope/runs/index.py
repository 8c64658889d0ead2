"""The index: the store's finished runs in one SQLite file, for quick queries. A copy, never the truth.

It is never changed in place. Whoever drives a sweep writes a whole new file now and then and renames it over the old,
so readers see one state or the other and need no lock, on any file system. What the file does not know yet, readers
find by comparing names: the answer is complete even while a sweep runs, or after the index was lost.

Nor is it believed. A row keeps size and time of the record it was read from, and a checksum of itself. Whenever the
index is opened every row is compared with its checksum and with the record's size and time (one look at each file,
without reading it; of a packed record, its line's size and CRC-32); where any differs, the record is read instead. So a
record that was edited, cut off or deleted is noticed, and so is a row that was changed by hand. An edit that kept both
is found by `store verify`, which reads all.

Runs have whatever fields they have: a row is a JSON list, and the index keeps the name of each place in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sqlite3
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pydantic_core import to_json

from recallscope.atomic import TEMPORARY, flush_folder
from recallscope.records import RecordError, row_of
from recallscope.runs.leases import read_failure
from recallscope.runs.packed import NO_STAMP, Stamp
from recallscope.runs.store import FAILURE, RECORD, RunStore, set_aside, stamp_of
from recallscope.specs import Value

INDEX = "index.sqlite"
INDEX_VERSION = 6  # of the tables; a file of another version is made anew
CREATE = "CREATE {} (run TEXT PRIMARY KEY, row TEXT, size INT, time INT, checksum INT)"
FIELDS = "CREATE TABLE fields (fields TEXT, checksum INT)"
CHECKED = "run || ' ' || row || ' ' || size || ' ' || time"  # what a checksum is of
MOST_WRONG = 100  # finished runs that are read from their records; if more are wrong or missing, it is made anew


@dataclass(frozen=True)
class Entry:
    """What the files of one run say, as a row."""

    run: str
    row: dict[str, Value]
    stamp: Stamp = NO_STAMP  # of the record


def entry_of(facts: Mapping[str, Any], stamp: Stamp = NO_STAMP) -> Entry:
    """The entry of a finished run."""
    return Entry(facts["run"], row_of(facts) | {"schema_version": facts["schema_version"]}, stamp)


def read_entry(store: RunStore, run: str) -> Entry | None:
    """The entry of a run; None if it has neither a record nor a sound failure note.

    A damaged record has an entry, with no more than its name and `status` "damaged": `store verify` says what is wrong.
    """
    try:
        facts, stamp = store.read(run)
        if facts is not None:
            return entry_of(facts, stamp)
        failure = read_failure(store.folder(run) / FAILURE)
    except RecordError:
        return Entry(run, {"run": run, "status": "damaged"})
    except (OSError, ValueError):
        return None  # nothing there
    return Entry(run, failure.row() | {"run": run})


@dataclass
class Table:
    """A table of entries in an SQLite connection, and the fields of their rows by place."""

    connection: sqlite3.Connection
    fields: list[str] = field(default_factory=list)

    def add(self, entries: Iterable[Entry], table: str = "runs") -> None:
        """Insert or replace entries; fields that are new get a place at the end."""
        places = {name: place for place, name in enumerate(self.fields)}

        def encoded() -> Iterator[tuple[str, str, int, int, int]]:
            for entry in entries:
                for name in entry.row:
                    if name not in places:
                        places[name] = len(self.fields)
                        self.fields.append(name)
                values: list[Value] = [None] * len(places)
                for name, value in entry.row.items():
                    values[places[name]] = value
                stored = (entry.run, to_json(values).decode(), *entry.stamp)
                yield *stored, _checksum(" ".join(map(str, stored)))

        self.connection.executemany(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?, ?)", encoded())  # noqa: S608

    def decode(self, row: str) -> dict[str, Value]:
        """The row of its JSON text; fields it does not have are left out."""
        try:
            values = json.loads(row)
        except ValueError as error:
            raise sqlite3.DatabaseError(f"a row is damaged: {error}") from error
        return {name: value for name, value in zip(self.fields, values, strict=False) if value is not None}


def rebuild_index(store: RunStore) -> int:
    """Make the index anew from the files; returns how many runs are finished."""
    with _new_file(store) as path, contextlib.closing(_connect(path)) as connection:
        table = Table(connection)
        _fill(table, store)
        _save(table)
        (count,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    return int(count)


def extend_index(store: RunStore, runs: Iterable[str]) -> None:
    """Write a new index file with these finished runs added; for the driver of a sweep."""
    found = [read_entry(store, run) for run in runs]
    entries = [entry for entry in found if entry is not None and entry.row["status"] == "done"]
    try:
        with _new_file(store) as path:
            shutil.copyfile(_there(store), path)
            with contextlib.closing(_connect(path)) as connection:
                table = _load(connection)
                table.add(entries)
                _save(table)
    except (FileNotFoundError, sqlite3.DatabaseError):
        rebuild_index(store)


@contextlib.contextmanager
def open_index(store: RunStore, *, anew: bool = False, in_memory: bool = False) -> Iterator[Table]:
    """A table whose view `now` holds every run of the files, whatever the index file knows of them.

    A damaged index file is moved aside and made anew, as is any with `anew`; `in_memory` does without the file.
    """
    try:
        there = not anew and not in_memory and os.path.lexists(store.root / INDEX)
        table = _complete(store, _open(store) if there else None, in_memory=in_memory)
    except sqlite3.DatabaseError as error:
        if not isinstance(error, _OtherVersionError):
            set_index_aside(store, error)
        table = _complete(store, None)
    with contextlib.closing(table.connection):
        yield table


def set_index_aside(store: RunStore, error: Exception) -> None:
    """Move a damaged index aside; a store we may only read keeps it."""
    with contextlib.suppress(OSError):
        set_aside(store.root, store.root / INDEX, f"not a sound SQLite file: {error}")


def _complete(store: RunStore, table: Table | None, *, in_memory: bool = False) -> Table:
    """Add what the index file does not know, and hide what is gone. An index that is mostly wrong is made anew."""
    there = set(store.names())
    known, wrong = _compared(store, table, there) if table else (set(), set())
    late = _unknown(store, there, known, wrong) if table and len(wrong) <= MOST_WRONG else []
    finished = sum(entry.row["status"] == "done" for entry in late)
    if table and max(len(wrong), finished) > MOST_WRONG:  # such as that of a copied store, whose files have other times
        table.connection.close()
        table = None
    if table is None:
        try:
            if not in_memory:
                rebuild_index(store)
                table = _open(store)
        except (OSError, sqlite3.DatabaseError):  # a store we may only read, or somebody damages what we write
            table = None
        if table is None:
            table = Table(sqlite3.connect(":memory:"))
            _fill(table, store)
        known, wrong = _compared(store, table, there)
        late = _unknown(store, there, known, wrong)
    connection, gone = table.connection, (known - there) | wrong
    connection.execute(CREATE.format("TEMP TABLE late"))
    table.add(late, "late")
    connection.execute("CREATE TEMP TABLE gone (run TEXT PRIMARY KEY)")
    connection.executemany("INSERT INTO gone VALUES (?)", [(run,) for run in gone])
    hidden = "WHERE run NOT IN (SELECT run FROM gone)" if gone else ""
    view = f"SELECT * FROM main.runs {hidden} UNION ALL SELECT * FROM late"  # noqa: S608
    connection.execute(f"CREATE TEMP VIEW now AS {view}")
    return table


def _unknown(store: RunStore, there: set[str], known: set[str], wrong: set[str]) -> list[Entry]:
    """Entries of the runs that a table does not know, or not rightly, read from their files."""
    unread = sorted((there - known) | (wrong & there))
    return [entry for run in unread if (entry := read_entry(store, run))]


def index_contradicts(store: RunStore, entries: Iterable[Entry]) -> bool:
    """Whether the index file says anything else than these entries, just read from the files. Nothing is written.

    An index that is not there, is of another version, or does not know some runs yet contradicts nothing.
    """
    if not (store.root / INDEX).exists():
        return False
    files = {entry.run: {name: v for name, v in entry.row.items() if v is not None} for entry in entries}
    try:
        table = _open(store)
        with contextlib.closing(table.connection):
            if _compared(store, table, set(store.names()))[1]:
                return True
            rows = table.connection.execute("SELECT run, row FROM runs")
            return any(run in files and table.decode(row) != files[run] for run, row in rows)
    except _OtherVersionError:
        return False
    except (sqlite3.DatabaseError, ValueError):
        return True


def _compared(store: RunStore, table: Table, there: set[str]) -> tuple[set[str], set[str]]:
    """The runs that a table knows, and those whose row or record is not as it was when the row was made."""
    known: set[str] = set()
    wrong: set[str] = set()
    runs, packed = f"{store.runs}{os.sep}", store.packed.lines()
    query = f"SELECT run, size, time, checksum, {CHECKED} FROM runs"  # noqa: S608
    for run, size, time, checksum, stored in table.connection.execute(query):
        known.add(run)
        if stored is None or checksum != _checksum(stored):
            wrong.add(run)
        elif run in there:
            try:
                stamp = stamp_of(os.stat(f"{runs}{run}{os.sep}{RECORD}"))
            except OSError:
                stamp = packed[run].stamp if run in packed else NO_STAMP
            if stamp != (size, time):
                wrong.add(run)
    return known, wrong


def _checksum(stored: str) -> int:
    return zlib.crc32(stored.encode())


def _fill(table: Table, store: RunStore) -> None:
    """Read all finished runs. Others are read anew for every query: their state may change."""
    table.connection.execute(CREATE.format("TABLE runs"))
    entries = (read_entry(store, run) for run in store.names())
    table.add(entry for entry in entries if entry is not None and entry.row["status"] == "done")


class _OtherVersionError(sqlite3.DatabaseError):
    """A sound index with other tables than ours."""


def _there(store: RunStore) -> Path:
    """The index file; a link or a pipe in its place counts as damage."""
    path = store.root / INDEX
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise sqlite3.DatabaseError("it is not a file")
    return path


def _open(store: RunStore) -> Table:
    connection = _connect(_there(store), "mode=ro&immutable=1")
    try:
        return _load(connection)
    except BaseException:
        connection.close()
        raise


def _load(connection: sqlite3.Connection) -> Table:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != INDEX_VERSION:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # raises here if it is no SQLite file
        raise _OtherVersionError(f"index version {version}")
    found = connection.execute("SELECT sql FROM sqlite_master WHERE sql NOT NULL").fetchall()
    if {*found} != {(FIELDS,), (CREATE.format("TABLE runs"),)}:  # a view in place of a table may be endless
        raise sqlite3.DatabaseError("its tables are not those of an index")
    row = connection.execute("SELECT fields, checksum FROM fields").fetchone()
    if row is None or row[1] != _checksum(str(row[0])):
        raise sqlite3.DatabaseError("its fields are damaged")
    try:
        return Table(connection, [str(name) for name in json.loads(row[0])])
    except (ValueError, TypeError) as error:
        raise sqlite3.DatabaseError(f"its fields are damaged: {error}") from error


def _save(table: Table) -> None:
    table.connection.execute("DROP TABLE IF EXISTS fields")
    fields = json.dumps(table.fields)
    table.connection.execute(FIELDS)
    table.connection.execute("INSERT INTO fields VALUES (?, ?)", [fields, _checksum(fields)])
    table.connection.execute(f"PRAGMA user_version = {INDEX_VERSION}")
    table.connection.commit()


def _connect(path: Path, options: str = "mode=rwc&nolock=1") -> sqlite3.Connection:
    """No lock is taken: a file that is written is ours alone, a file that is read never changes."""
    connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?{options}", uri=True)
    connection.execute("PRAGMA temp_store = MEMORY")
    if "nolock" in options:
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
    return connection


@contextlib.contextmanager
def _new_file(store: RunStore) -> Iterator[Path]:
    """A path beside the index; when the block ends well, the file there becomes the index."""
    draft = store.root / f".{INDEX}.{uuid.uuid4().hex[:12]}{TEMPORARY}"
    try:
        yield draft
        with open(draft, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(draft, store.root / INDEX)
        flush_folder(store.root)
    finally:
        draft.unlink(missing_ok=True)
