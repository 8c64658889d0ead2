"""The index answers as the files would, whatever state it is in itself; a table for other programs holds the same."""

import contextlib
import csv
import os
import random
import sqlite3
import threading
import time

import pytest

from made_records import fill, record
from recallscope.runs import index as index_module
from recallscope.runs import table as table_module
from recallscope.runs.index import INDEX, extend_index, rebuild_index
from recallscope.runs.leases import Failure
from recallscope.runs.store import RunStore
from recallscope.runs.table import export_rows, find_runs, parse_conditions
from recallscope.runs.upkeep import verify
from recallscope.specs import flat_fields


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "store", create=True)


def names(store, *conditions):
    return {row["run"] for row in find_runs(store, parse_conditions(conditions))}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("state_dim<=8", lambda w: w["state_dim"] <= 8),
        ("embed_dim = 64", lambda w: w["embed_dim"] == 64),
        ("embed_dim!=64", lambda w: w["embed_dim"] != 64),
        ("seed>1", lambda w: w["seed"] > 1),
        ("model=linear_mamba", lambda w: True),
        ("model='mamba'", lambda w: False),
        ("residual=false", lambda w: True),
        ("learning_rate==0.01", lambda w: True),
        ("state_dim<8, embed_dim>=32", lambda w: w["state_dim"] < 8 and w["embed_dim"] >= 32),
    ],
)
def test_conditions_mean_what_they_say(store, condition, holds):
    made = fill(store, 60)
    rebuild_index(store)
    assert names(store, condition) == {found.run for found in made if holds(flat_fields(found.spec))}


@pytest.mark.parametrize(
    "text", ["state_dm=3", "state_dim", "state_dim=x", "=3", "embed_dim=nan", "run; DROP TABLE runs=1"]
)
def test_conditions_that_are_none_are_explained(store, text):
    fill(store, 3)
    with pytest.raises(ValueError, match=r"Did you mean|condition|number|There are"):
        find_runs(store, parse_conditions([text]))


def test_an_empty_store_answers_any_condition_with_nothing(store):
    assert find_runs(store, parse_conditions(["width<=16"])) == []


def test_rows_carry_fields_and_results(store):
    found = record(embed_dim=48, accuracy=0.25)
    store.put(found)
    (row,) = find_runs(store)
    assert {name: row[name] for name in flat_fields(found.spec)} == flat_fields(found.spec)
    assert (row["status"], row["test_accuracy"], row["seconds"]) == ("done", 0.25, 8.25)
    assert row["needs"] is None
    assert "num_heads" not in row  # columns are those the store's runs have


def test_runs_the_index_does_not_know_are_found_all_the_same(store):
    made = fill(store, 10)
    assert rebuild_index(store) == 10
    late = record(seed=999)
    store.put(late)
    assert names(store) == {found.run for found in [*made, late]}
    extend_index(store, [late.run])
    assert names(store) == {found.run for found in [*made, late]}


def test_an_index_that_lacks_many_runs_rebuilds_itself(store, monkeypatch):
    """Such as runs that were copied into the store: they are read once, not at every query."""
    fill(store, 3)
    rebuild_index(store)
    old = (store.root / INDEX).read_bytes()
    monkeypatch.setattr("recallscope.runs.index.MOST_WRONG", 4)
    for seed in range(900, 904):
        store.put(record(seed=seed))
    assert len(names(store)) == 7
    assert (store.root / INDEX).read_bytes() == old
    store.put(record(seed=904))
    store.put_failure(Failure(run="0" * 24, spec=record().spec, tries=3, reason="was killed", stderr="", at=0.0))
    assert len(names(store)) == 9
    new = (store.root / INDEX).read_bytes()
    assert new != old
    assert len(names(store)) == 9
    assert (store.root / INDEX).read_bytes() == new


def test_runs_that_are_gone_or_have_changed_their_state_are_noticed(store):
    gone, failed = fill(store, 2)
    (store.folder(failed.run) / "record.json").unlink()
    store.put_failure(Failure(run=failed.run, spec=failed.spec, tries=3, reason="was killed", stderr="", at=0.0))
    rebuild_index(store)
    assert names(store, "status=failed") == {failed.run}
    (store.folder(gone.run) / "record.json").unlink()
    store.folder(gone.run).rmdir()
    store.put(failed)
    assert names(store) == names(store, "status=done") == {failed.run}


def test_a_damaged_index_is_set_aside_and_made_anew(store):
    made = {found.run for found in fill(store, 50)}
    rebuild_index(store)
    sound = (store.root / INDEX).read_bytes()
    luck = random.Random(0)
    for _ in range(60):
        data = bytearray(sound)
        match luck.randrange(3):
            case 0:
                data = data[: luck.randrange(len(data))]
            case 1:
                data = bytearray(luck.randbytes(luck.randrange(5000)))
            case 2:
                start = luck.randrange(100)
                data[start : start + 50] = luck.randbytes(50)
        (store.root / INDEX).write_bytes(data)
        assert names(store) == made
    assert list(store.root.glob(f"damaged/*/{INDEX}"))


NUMBERS = "WITH RECURSIVE n(run) AS (SELECT 1 UNION ALL SELECT run + 1 FROM n)"
ENDLESS = f"{NUMBERS} SELECT run, run AS row, 1 AS size, 1 AS time, 1 AS checksum FROM n"


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "sql",
    [
        f"DROP TABLE runs; CREATE VIEW runs AS {ENDLESS};",
        "CREATE TRIGGER t AFTER INSERT ON runs BEGIN DELETE FROM runs; END;",
    ],
)
def test_an_index_whose_tables_compute_is_made_anew(store, sql):
    """An index from elsewhere may hold a view in place of a table, and reading it would never end."""
    made = {found.run for found in fill(store, 5)}
    rebuild_index(store)
    with contextlib.closing(sqlite3.connect(store.root / INDEX)) as connection:
        connection.executescript(sql)
    assert verify(store, move=False).index_was_wrong
    extend_index(store, sorted(made)[:1])
    assert names(store) == made


def test_a_store_that_may_only_be_read_answers_from_memory(store, monkeypatch):
    made = {found.run for found in fill(store, 5)}

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("recallscope.runs.index._new_file", refuse)
    monkeypatch.setattr("recallscope.runs.index.set_aside", refuse)
    assert names(store) == made
    (store.root / INDEX).write_bytes(b"nonsense, and it cannot be moved away")
    assert names(store) == made


def test_an_index_of_another_version_is_replaced(store):
    made = {found.run for found in fill(store, 5)}
    connection = sqlite3.connect(store.root / INDEX)
    connection.execute("CREATE TABLE other (x)")
    connection.execute("PRAGMA user_version = 77")
    connection.commit()
    connection.close()
    assert names(store) == made


def test_readers_never_see_less_than_was_there_while_the_driver_writes(store):
    made = fill(store, 40)
    rebuild_index(store)
    stop, least = threading.Event(), []

    def read():
        while not stop.is_set():
            least.append(len(find_runs(store, columns=("run",))))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(20):
        late = record(seed=10_000 + number)
        store.put(late)
        extend_index(store, [late.run])
    stop.set()
    reader.join()
    assert least == sorted(least)
    assert least[0] >= len(made)
    assert len(find_runs(store)) == 60


def test_sorting_and_limits(store):
    fill(store, 30)
    rows = find_runs(store, columns=("test_accuracy",), order_by=("-test_accuracy",), limit=3)
    every = sorted((row["test_accuracy"] for row in find_runs(store)), reverse=True)
    assert [row["test_accuracy"] for row in rows] == every[:3]
    assert len(find_runs(store, limit=10**40)) == 30
    with pytest.raises(ValueError, match="not a column"):
        find_runs(store, order_by=("nonsense",))


def timed_index(store, count):
    fill(store, count)
    began = time.process_time()
    assert rebuild_index(store) == count
    rebuilt = time.process_time() - began
    began = time.process_time()
    rows = find_runs(store, parse_conditions(["embed_dim=64", "state_dim<=8"]), limit=50)
    return rebuilt, time.process_time() - began, rows


def test_two_thousand_records_are_indexed_and_asked_in_no_time(store):
    """Times that a busy machine keeps, too."""
    rebuilt, asked, rows = timed_index(store, 2000)
    assert rebuilt < 6
    assert asked < 0.5
    assert len(rows) == 50


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_hundred_thousand_records_are_asked_in_a_few_looks_at_each(store):
    """Against the floor in the same run: one look at the size and time of every record."""
    rebuilt, asked, rows = timed_index(store, 100_000)
    began = time.process_time()
    for path in store.runs.iterdir():
        os.stat(f"{path}/record.json")
    floor = time.process_time() - began
    assert rebuilt < 60 * floor
    assert asked < 4 * floor
    assert len(rows) == 50


def test_an_index_that_is_destroyed_while_it_is_read_ends_in_no_error(store, monkeypatch):
    """Whoever writes over it may be quicker than the one who makes it anew: then the files are read without it."""
    made = fill(store, 5)
    rebuild_index(store)
    real = index_module._new_file

    @contextlib.contextmanager
    def spoilt(store):
        with real(store) as path:
            yield path
        (store.root / INDEX).write_bytes(b"SQLite format 3\0" + bytes(4000))

    (store.root / INDEX).write_bytes(b"SQLite format 3\0" + bytes(4000))
    monkeypatch.setattr(index_module, "_new_file", spoilt)
    assert len(find_runs(store)) == len(made)
    asked, select = [], table_module._select

    def malformed_at_first(*question):
        asked.append(question)
        if len(asked) < 3:
            raise sqlite3.DatabaseError("database disk image is malformed")
        return select(*question)

    monkeypatch.setattr(table_module, "_select", malformed_at_first)
    assert len(find_runs(store)) == len(made)
    assert len(asked) == 3


@pytest.fixture
def rows(store):
    fill(store, 12)
    return find_runs(store)


def test_csv_has_a_row_per_run_and_a_column_per_field(rows, tmp_path):
    export_rows(rows, tmp_path / "runs.csv")
    with open(tmp_path / "runs.csv", newline="") as file:
        read = list(csv.DictReader(file))
    assert list(read[0]) == list(rows[0])
    assert [row["run"] for row in read] == [row["run"] for row in rows]
    assert [float(row["test_accuracy"]) for row in read] == [row["test_accuracy"] for row in rows]


def test_parquet_reads_back_the_same(rows, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    export_rows(rows, tmp_path / "runs.parquet")
    assert parquet.read_table(tmp_path / "runs.parquet").to_pylist() == rows


def test_without_pyarrow_the_way_out_is_named(rows, tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install pyarrow.*runs\.csv"):
        export_rows(rows, tmp_path / "runs.parquet")


def test_other_endings_are_refused(rows, tmp_path):
    with pytest.raises(ValueError, match=r"neither \.csv nor \.parquet"):
        export_rows(rows, tmp_path / "runs.xlsx")


@pytest.mark.parametrize("number", ["3e40", "-3e40", "9223372036854775808", "1e308", "123456789012345678901234"])
def test_numbers_beyond_what_sqlite_holds_are_compared_and_no_error(store, number):
    made = fill(store, 3)
    for column in ("run", "seed", "test_accuracy"):
        assert find_runs(store, parse_conditions([f"{column}={number}"])) == []
    below = "<" if not number.startswith("-") else ">"
    assert len(find_runs(store, parse_conditions([f"seed{below}{number}"]))) == len(made)
