"""A table for other programs holds what the index holds."""

import csv

import pytest
from synthetic_runs import fill

from recallscope.runs.store import RunStore
from recallscope.runs.table import export_rows, find_runs, parse_conditions


@pytest.fixture
def rows(tmp_path):
    store = RunStore(tmp_path / "store", create=True)
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
def test_numbers_beyond_what_sqlite_holds_are_compared_and_no_error(tmp_path, number):
    store = RunStore(tmp_path / "store", create=True)
    made = fill(store, 3)
    for column in ("run", "seed", "test_accuracy"):
        assert find_runs(store, parse_conditions([f"{column}={number}"])) == []
    below = "<" if not number.startswith("-") else ">"
    assert len(find_runs(store, parse_conditions([f"seed{below}{number}"]))) == len(made)
