"""`recallscope report` as a user meets it."""

import json
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from commands import refused
from recallscope.records import RunRecord
from recallscope.runs.store import RunStore
from recallscope.studies.experiment import find_experiment
from recallscope.studies.report import Report, run_facts

ROOT = Path(__file__).resolve().parents[2]


def made_up(cell):
    return RunRecord(
        run=cell.run, spec=cell.spec, test_accuracy=0.5, val_accuracy=0.5, test_queries=100, best_step=1, steps=1,
        seconds=90.0, environment={"threads": "2", "torch": "0.0"},
    )  # fmt: skip


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with results/paper in it, which holds the quick grid; accuracies are made up."""
    monkeypatch.chdir(tmp_path)
    store = RunStore(tmp_path / "results" / "paper", create=True)
    for cell in find_experiment("dn-grid").parts("quick")[0].cells:
        store.put(made_up(cell))
    return tmp_path


@pytest.fixture
def made(monkeypatch, findings, laws, report):
    """Findings, laws and figures that cost nothing."""

    def make(runs, *, store, pictures, workers):
        return Report(findings, laws, run_facts(runs, store), report.pictures)

    monkeypatch.setattr("recallscope.studies.report.make_report", make)


@pytest.mark.usefixtures("made")
def test_every_example_in_the_help_runs(run, home):
    _, out, _ = run("report", "--help")
    lines = [line.strip() for line in out.splitlines()]
    examples = [line for line in lines if line.startswith("recallscope report ") and "[" not in line]
    assert examples
    for example in examples:
        code, out, err = run(*shlex.split(example)[1:], "--scale", "quick")
        assert code == 0, err
        assert "Of 5 questions" in out
    assert (home / "report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


@pytest.mark.usefixtures("made")
def test_markdown_brings_its_figures(run, home):
    code, _, err = run("report", "results/paper", "--scale", "quick", "--markdown", "docs/REPRODUCTION.md")
    assert (code, err) == (0, "")
    text = (home / "docs" / "REPRODUCTION.md").read_text(encoding="utf-8")
    assert "](figures/fig-7.png)" in text
    drawn = {path.name for path in (home / "docs" / "figures").iterdir()}
    assert drawn == {"fig-7.png", "heads-figure.svg", "homeless.svg", "nobody's.png"}
    cells = len({cell.run for cell in find_experiment("dn-grid").parts("quick")[0].cells})
    assert f"{cells} of " in text
    assert f"{cells * 3 / 60:.1f} core-hours" in text  # 90 s on two threads each
    appendix = (home / "docs" / "REPRODUCTION_APPENDIX.md").read_text(encoding="utf-8")
    assert f"{cells * 3} minutes of core time" in appendix


@pytest.mark.usefixtures("made", "home")
def test_json_alone_on_stdout(run):
    code, out, err = run("report", "results/paper", "--scale", "quick", "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["verdicts"] == {"holds": 2, "holds approximately": 1, "does not hold": 1, "not tested": 1}
    assert [row["experiment"] for row in answer["findings"]] == ["dn-grid"] * 3 + ["layers", "heads"]
    assert answer["law_table"]["best"] == {"linear | MQAR": ["trained-sharing"], "designed": ["unified"]}
    assert len(answer["law_table"]["entries"]) == 5


@pytest.mark.usefixtures("made", "home")
def test_without_a_file_the_findings_are_printed(run, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = run("report", "results/paper", "--scale", "quick")
    assert code == 0
    assert "Theory against trained" in out
    assert "[0.00, 0.02]" in out


@pytest.mark.usefixtures("made")
def test_mistakes_are_answered(run, home):
    refused(run("report", "nowhere", "--output", "a.html"), "nowhere")
    tiny = find_experiment("layers").parts("quick")[0].cells[0]  # at no other scale
    RunStore(home / "tiny", create=True).put(made_up(tiny))
    refused(
        run("report", "tiny", "--output", "a.html"), "at scale small", "1 of --scale quick", "recallscope reproduce"
    )
    refused(run("report", "results/paper", "--scale", "quick", "--output", "results"), "results is a folder")
    (home / "file").write_text("")
    refused(run("report", "results/paper", "--scale", "quick", "--output", "file/report.html"), "file")
    refused(run("report", "results/paper", "--scale", "quick", "--markdown", "results"), "results is a folder")
    assert not (home / "a.html").exists()


@pytest.mark.usefixtures("made", "home")
def test_without_jinja2_the_extra_is_named_before_any_work(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    monkeypatch.setattr("recallscope.studies.report.make_report", lambda *_, **__: pytest.fail("work was done"))
    refused(run("report", "results/paper", "--scale", "quick", "--output", "a.html"), "jinja2", "recallscope[figures]")


@pytest.mark.slow
def test_the_line_of_the_help_on_the_runs_of_the_repository(run, tmp_path, monkeypatch):
    shutil.copytree(ROOT / "results" / "paper", tmp_path / "results" / "paper")
    monkeypatch.chdir(tmp_path)
    pages = []
    for name in ("one.html", "two.html"):
        code, _, err = run("report", "results/paper", "--output", name)
        assert code == 0, err
        pages.append(Path(name).read_bytes())
    assert pages[0] == pages[1]
