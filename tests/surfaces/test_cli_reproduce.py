"""`reproduce` as a user meets it: what there is, what it would do, one experiment for real, and mistakes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from recallscope.paper import CLAIMS
from recallscope.paper.experiment import experiments

pytest.importorskip("torch")
ROOT = Path(__file__).resolve().parents[2]


def test_the_list_shows_every_figure_and_table_of_the_paper(run) -> None:
    code, out, _ = run("reproduce", "--list", "--json")
    assert code == 0
    answer = json.loads(out)
    shown = {number for row in answer["experiments"] + answer["without_runs"] for number in row["shows"]}
    assert {row.number for row in CLAIMS if row.kind in ("figure", "table")} <= shown
    for row in answer["experiments"]:
        assert set(row["scales"]) == {"quick", "small", "paper"}
        assert all(scale["runs"] > 0 and scale["core_seconds"] > 0 for scale in row["scales"].values())


def test_the_list_is_a_table_for_people(run) -> None:
    code, out, _ = run("reproduce", "--list")
    assert code == 0
    assert all(experiment.name in out for experiment in experiments())


def test_a_dry_run_counts_and_runs_nothing(run, tmp_path: Path) -> None:
    code, out, _ = run("reproduce", "heads", "--scale", "quick", "--store", tmp_path / "store", "--dry-run", "--json")
    assert code == 0
    (row,) = json.loads(out)["experiments"]
    assert (row["name"], row["runs"], row["done"]) == ("heads", 16, 0)
    assert not (tmp_path / "store").exists()


def test_an_unknown_experiment_is_answered_in_a_sentence(run) -> None:
    code, out, err = run("reproduce", "dn-gird")
    assert (code, out) == (2, "")
    assert "There are: dn-grid, curves" in err


def reproduce(name: str, folder: Path) -> dict[str, object]:
    """The command in a process of its own, as the pasted line runs it."""
    done = subprocess.run(
        [sys.executable, "-m", "recallscope.cli.main", "reproduce", name, "--scale", "quick", "--json"],
        cwd=folder, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_one_experiment_for_real_then_again_from_what_is_kept(tmp_path: Path) -> None:
    """The small mechanism model: trained, looked into, drawn; the second time nothing is run."""
    answer = reproduce("mechanism", tmp_path)
    findings = answer["findings"]["mechanism"]  # type: ignore[index]
    assert len(findings) == 8
    assert all(finding["verdict"] != "not tested" for finding in findings)
    figures = [Path(path) for path in answer["figures"]]  # type: ignore[attr-defined]
    assert {path.stem for path in figures} == {"fig-3", "fig-13", "fig-14", "fig-15", "fig-16"}
    assert all((tmp_path / path).stat().st_size > 1000 for path in figures)
    store = tmp_path / "runs" / "paper"
    before = {path: path.stat().st_mtime_ns for path in store.glob("runs/*/record.json")}
    assert reproduce("mechanism", tmp_path)["findings"] == answer["findings"]
    assert {path: path.stat().st_mtime_ns for path in store.glob("runs/*/record.json")} == before


@pytest.mark.slow
@pytest.mark.parametrize("name", [one.name for one in experiments() if one.name != "mechanism"])
def test_every_experiment_runs_at_the_quick_scale(name: str, tmp_path: Path) -> None:
    answer = reproduce(name, tmp_path)
    assert answer["findings"][name]  # type: ignore[index]
    assert answer["figures"]
