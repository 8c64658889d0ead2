"""docs/scaling.md: its tables are those of the measured costs and of results/sweeps/scale.json."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
found = importlib.util.spec_from_file_location("scaling", ROOT / "results" / "sweeps" / "scaling.py")
scaling = importlib.util.module_from_spec(found)
found.loader.exec_module(scaling)


@pytest.mark.slow
def test_the_tables_are_up_to_date():
    text = scaling.PAGE.read_text(encoding="utf-8")
    assert scaling.page(text) == text, "run python results/sweeps/scaling.py"


def test_longest_first_fills_the_workers():
    assert scaling.schedule([3.0, 3.0, 2.0, 2.0, 2.0], 2) == 7.0
    assert scaling.schedule([5.0, 1.0, 1.0], 2) == 5.0
    assert scaling.schedule([1.0], 100) == 1.0


def test_no_run_is_done_twice_and_nothing_is_left_behind():
    for row in scaling.measured()["sweeps"]:
        assert row["leases_left"] == 0
        assert row["index_written"] >= row["drivers"]
    sizes = {(row["drivers"], row["workers"]) for row in scaling.measured()["sweeps"]}
    assert sizes >= {(drivers, workers) for drivers in (1, 4) for workers in (1, 8, 64)}
