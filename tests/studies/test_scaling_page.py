"""docs/scaling.md and docs/LAWS.md: their tables are those of the committed runs and of results/sweeps/scale.json."""

import json
import re

import pytest

from commands import ROOT, script
from recallscope.runs.store import RunStore
from recallscope.studies import report
from recallscope.studies.experiment import schedule
from recallscope.studies.paper_runs import PaperRuns
from recallscope.studies.report import with_tables

MEASURED = json.loads((ROOT / "results" / "sweeps" / "scale.json").read_text(encoding="utf-8"))
sweep_scale = script("benchmarks/sweep_scale.py")


@pytest.mark.slow
@pytest.mark.parametrize("page", ["scaling.md", "LAWS.md"])
def test_the_tables_are_up_to_date(page):
    """How far each law is off is not compared: records are added, and the site counts them again."""

    def rows(text):
        return re.sub(r" \| [^|]*\|\n", " |\n", text) if page == "LAWS.md" else text

    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    runs = PaperRuns(RunStore(ROOT / "results" / "paper"), "small")
    assert rows(with_tables(text, runs)) == rows(text), "make report"


def test_tables_go_where_a_page_has_a_place_for_them(monkeypatch):
    monkeypatch.setattr(report, "TABLES", {"laws": lambda runs, page: [f"| {runs} |", f"| {len(page)} |"]})
    page = "before\n<!-- laws -->\nold\n\n<!-- /laws -->\nafter <!-- laws -->"
    assert with_tables(page, "runs") == page.replace("old\n", f"\n| runs |\n| {len(page)} |\n")
    assert with_tables("nothing", "runs") == "nothing"


def test_longest_first_fills_the_workers():
    assert schedule([3.0, 3.0, 2.0, 2.0, 2.0], 2) == 7.0
    assert schedule([5.0, 1.0, 1.0], 2) == 5.0
    assert schedule([1.0], 100) == 1.0


def test_the_measured_tables_are_in_the_page():
    page = (ROOT / "docs" / "scaling.md").read_text(encoding="utf-8")
    for table in sweep_scale.tables(MEASURED).split("\n\n"):
        assert table in page, "python benchmarks/sweep_scale.py --tables results/sweeps/scale.json"


def test_no_run_is_done_twice_and_nothing_is_left_behind():
    for row in MEASURED["sweeps"]:
        assert row["leases_left"] == 0
        assert row["index_written"] >= row["drivers"]
    sizes = {(row["drivers"], row["workers"]) for row in MEASURED["sweeps"]}
    assert sizes >= {(drivers, workers) for drivers in (1, 4) for workers in (1, 8, 64)}
