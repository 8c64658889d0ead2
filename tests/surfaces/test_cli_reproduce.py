"""`reproduce` as a user meets it: what there is, what it would do, one experiment for real, and mistakes."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from made_records import made
from recallscope.runs.plan import Plan
from recallscope.runs.store import RunStore
from recallscope.runs.views import PlainView, varying_columns
from recallscope.studies.claims import CLAIMS
from recallscope.studies.experiment import experiments, find_experiment

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


def test_a_dry_run_counts_and_runs_nothing(run, tmp_path: Path) -> None:
    code, out, _ = run("reproduce", "heads", "--scale", "quick", "--store", tmp_path / "store", "--dry-run", "--json")
    assert code == 0
    (row,) = json.loads(out)["experiments"]
    assert (row["name"], row["runs"], row["done"]) == ("heads", 16, 0)
    assert not (tmp_path / "store").exists()


def test_an_unknown_experiment_is_answered_in_a_sentence(run) -> None:
    code, out, err = run("reproduce", "dn-gird")
    assert (code, out) == (2, "")
    assert "Choose one of dn-grid, curves" in err


def reproduce(name: str, folder: Path) -> dict[str, object]:
    """The command in a process of its own, as the pasted line runs it."""
    done = subprocess.run(
        [sys.executable, "-m", "recallscope.cli.main", "reproduce", name, "--scale", "quick", "--json"],
        cwd=folder, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


@pytest.mark.slow
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
    assert bool(answer["figures"]) == bool(find_experiment(name).figures)


def test_without_a_name_nothing_is_run(run, tmp_path: Path) -> None:
    code, out, err = run("reproduce", "--store", tmp_path / "store")
    assert (code, err) == (0, "")
    assert all(experiment.name in out for experiment in experiments())
    assert not (tmp_path / "store").exists()


def test_what_is_done_is_counted_at_every_scale_and_damaged_records_are_not(run, tmp_path: Path) -> None:
    store = RunStore(tmp_path / "store", create=True)
    cells = list(find_experiment("layers").cells("quick").values())
    for cell in cells:
        store.put(made(cell.spec))
    (store.folder(cells[0].run) / "record.json").write_text("{")
    _, out, _ = run("reproduce", "--list", "--json", "--store", tmp_path / "store")
    rows = {row["name"]: row["scales"] for row in json.loads(out)["experiments"]}
    assert rows["layers"]["quick"]["done"] == len(cells) - 1
    assert sum(at["done"] for scales in rows.values() for at in scales.values()) == len(cells) - 1


@pytest.mark.parametrize("name", ["dn-grid", "layers", "minimality", "repeated-keys", "mechanism"])
def test_runs_are_found_among_others_without_making_the_grid(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twin: all cells of the grids."""
    every = find_experiment("seeds").cells("small") | find_experiment(name).cells("small")
    fields = {run: cell.spec.model_dump(mode="json") for run, cell in every.items()}
    one = find_experiment(name)
    exact = one.progress("small", fields)
    assert exact == (len(one.cells("small")),) * 2
    monkeypatch.setattr("recallscope.studies.experiment.MANY", 0)
    assert one.progress("small", fields) == exact
    for part in one.parts("small"):
        assert part.grid.among(fields) == {cell.run for cell in part.cells}


def test_a_run_that_two_parts_ask_for_counts_once() -> None:
    comparison = find_experiment("architectures")
    asked = [cell.run for part in comparison.parts("small") for cell in part.cells]
    assert len(set(asked)) < len(asked)
    assert comparison.progress("small", {}) == (len(set(asked)), 0)
    assert comparison.progress("small", dict.fromkeys(asked)) == (len(set(asked)),) * 2


def test_progress_lines_name_what_differs() -> None:
    heads = list(find_experiment("heads").cells("small").values())
    assert varying_columns(heads) == ["state_dim", "num_heads", "head_pattern"]
    assert varying_columns(heads[:1]) == []
    stream = io.StringIO()
    view = PlainView(stream)
    view.begin(Plan(missing=heads))
    view.failed(heads[0], "died")
    assert "head_pattern=MQA" in stream.getvalue()
