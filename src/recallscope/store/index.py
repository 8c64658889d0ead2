"""The index: the store's records in one SQLite file, for quick questions. A copy, never the truth.

It is never changed in place. Whoever drives a sweep writes a whole new file now and then and renames it over the old,
so readers see one state or the other and need no lock, on any file system. What the file does not know yet, readers
find by comparing names: the answer is complete even while a sweep runs, or after the index was lost.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import uuid
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import quote

from recallscope.atomic import TEMPORARY, flush_folder
from recallscope.records import RecordError, RunRecord
from recallscope.store.attempts import Failure, read_failure
from recallscope.store.columns import COLUMNS, CREATE, INSERT, Row, row_of
from recallscope.store.damaged import set_aside
from recallscope.store.filters import Condition, where_clause
from recallscope.store.run_store import FAILURE, RunStore

INDEX = "index.sqlite"
INDEX_VERSION = 1  # of the columns; another one is made anew


def rebuild_index(store: RunStore) -> int:
    """Make the index anew from the files; returns how many runs it lists."""
    with _new_file(store) as beside:
        connection = _connect(beside)
        _create(connection)
        connection.executemany(INSERT.format(table="runs"), _rows(store, store.names()))
        (count,) = connection.execute("SELECT count(*) FROM runs").fetchone()
        connection.commit()
        connection.close()
    return int(count)


def extend_index(store: RunStore, found: Iterable[RunRecord | Failure]) -> None:
    """A new index file with these runs added; for the driver of a sweep."""
    rows = [row_of(item) for item in found]
    path = store.root / INDEX
    try:
        with _new_file(store) as beside:
            shutil.copyfile(path, beside)
            connection = _connect(beside)
            try:
                _check(connection)
                connection.executemany(INSERT.format(table="runs"), rows)
                connection.commit()
            finally:
                connection.close()
    except (FileNotFoundError, sqlite3.DatabaseError):
        rebuild_index(store)


def find_runs(
    store: RunStore,
    conditions: Iterable[Condition] = (),
    *,
    columns: tuple[str, ...] = COLUMNS,
    order_by: tuple[str, ...] = ("run",),
    limit: int | None = None,
) -> list[dict[str, Any]]:
    """Rows that satisfy all conditions, as dictionaries by column; `columns` and `order_by` are names of COLUMNS."""
    unknown = [name for name in (*columns, *order_by) if name.removeprefix("-") not in COLUMNS]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no column. There are: {', '.join(COLUMNS)}.")
    clause, values = where_clause(conditions)
    order = ", ".join(f"{name[1:]} DESC" if name.startswith("-") else name for name in order_by or ("run",))
    query = f"SELECT {', '.join(columns)} FROM {{table}} WHERE {clause} ORDER BY {order} LIMIT ?"  # noqa: S608
    for file_is_sound in (True, False):
        try:
            with contextlib.closing(_open_complete(store, file_is_sound)) as connection:
                rows = connection.execute(
                    query.format(table="now"), [*values, -1 if limit is None else limit]
                ).fetchall()
            return [dict(zip(columns, row, strict=True)) for row in rows]
        except sqlite3.DatabaseError as error:
            with contextlib.suppress(OSError):  # a store we may only read keeps its damage
                set_aside(store.root, store.root / INDEX, f"not a sound SQLite file: {error}")
    raise AssertionError("an index made a moment ago cannot be read")


def _open_complete(store: RunStore, file_is_sound: bool) -> sqlite3.Connection:
    """A connection whose view `now` holds every run of the files, whatever the index file knows of them."""
    path = store.root / INDEX
    connection = _connect(path, "mode=ro&immutable=1") if file_is_sound and path.exists() else None
    try:
        if connection is not None:
            _check(connection)
    except _OtherVersionError:
        assert connection is not None
        connection.close()
        connection = None
    if connection is None:
        try:
            rebuild_index(store)
            connection = _connect(path, "mode=ro&immutable=1")
        except (OSError, sqlite3.OperationalError):  # a store we may only read: an index in memory answers as well
            connection = sqlite3.connect(":memory:")
            _create(connection)
            connection.executemany(INSERT.format(table="runs"), _rows(store, store.names()))
    done = set(map(itemgetter(0), connection.execute("SELECT run FROM runs WHERE status = 'done'")))
    there = set(store.names())
    doubtful, gone = there - done, done - there
    connection.execute(f"CREATE TEMP {CREATE.removeprefix('CREATE ')}".replace("TABLE runs", "TABLE late", 1))
    connection.executemany(INSERT.format(table="late"), _rows(store, sorted(doubtful)))
    connection.execute("CREATE TEMP TABLE gone (run TEXT PRIMARY KEY) WITHOUT ROWID")
    connection.executemany("INSERT INTO gone VALUES (?)", [(run,) for run in gone])
    view = "CREATE TEMP VIEW now AS SELECT * FROM main.runs WHERE status = 'done' {} UNION ALL SELECT * FROM late"
    connection.execute(view.format("AND run NOT IN (SELECT run FROM gone)" if gone else ""))
    return connection


class _OtherVersionError(sqlite3.DatabaseError):
    """A sound index with other columns than ours."""


def _check(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version != INDEX_VERSION:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # no SQLite file at all: says so here
        raise _OtherVersionError(f"index version {version}")


def _create(connection: sqlite3.Connection) -> None:
    connection.execute(CREATE)
    connection.execute(f"PRAGMA user_version = {INDEX_VERSION}")


def _rows(store: RunStore, names: Iterable[str]) -> Iterator[Row]:
    """Rows of the runs that have a readable record or failure note."""
    for run in names:
        try:
            record = store.get(run)
        except RecordError:
            continue  # damaged or newer: `store verify` names it
        if record is not None:
            yield row_of(record)
            continue
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, ValueError):
            yield row_of(read_failure(store.folder(run) / FAILURE))


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
    beside = store.root / f".{INDEX}.{uuid.uuid4().hex[:12]}{TEMPORARY}"
    try:
        yield beside
        with open(beside, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(beside, store.root / INDEX)
        flush_folder(store.root)
    finally:
        beside.unlink(missing_ok=True)
