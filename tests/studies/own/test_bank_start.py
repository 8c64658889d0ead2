"""docs/BANKS.md says of the trainings from two banks what their records say."""

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_says_what_the_records_say():
    runs = json.loads((ROOT / "results/mechanism/full/bank_start.json").read_text())
    page = (ROOT / "docs/BANKS.md").read_text()
    ends = {start: [run["after"]["recall"] for run in runs if run["start"] == start] for start in ("usual", "bank")}
    assert len(ends["usual"]) == len(ends["bank"]) == 4
    assert {f"{p:.2f}"[1:] for p in ends["bank"]} == {".87"}
    assert "ended a little above the law, at .87." in page
    low, high = (f"{end(ends['usual']):.2f}"[1:] for end in (min, max))
    assert f"recalled {low} to {high}\n" in page
