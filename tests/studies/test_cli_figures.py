"""`recallscope figures` as a user meets it; processes draw what one process draws."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from made_up import fill

from commands import refused
from recallscope.studies.drawing import do_jobs, draw_figures, figure_job
from recallscope.studies.experiment import find_figures, paper_figures

FIGURES = paper_figures()


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_every_example_in_the_help_runs(run):
    _, out, _ = run("figures", "--help")
    examples = [line.strip() for line in out.splitlines() if line.strip().startswith("recallscope figures ")]
    examples = [line for line in examples if "[" not in line]
    assert len(examples) >= 2
    for example in examples:
        code, out, err = run(*shlex.split(example)[1:])
        assert code == 0, (example, err)
        assert out
    assert Path("figures/fig-2.png").exists()


def test_the_list_has_every_figure(run):
    code, out, _ = run("figures", "--list", "--json")
    assert code == 0
    assert [figure["name"] for figure in json.loads(out)["figures"]] == list(FIGURES)
    assert "fig-17" in run("figures", "--list")[1]


def test_an_experiment_is_drawn_from_its_store(run, tmp_path):
    fill(tmp_path / "results" / "paper", "quick", labels=["large vocabularies"], designed=False)
    code, out, err = run("figures", "results/paper", "large-vocab", "--scale", "quick", "--out", "out", "--json")
    assert (code, err.split()) == (0, ["[1/2]", "fig-11", "[2/2]", "fig-12"])
    answer = json.loads(out)
    assert [figure["name"] for figure in answer["figures"]] == ["fig-11", "fig-12"]
    files = [Path(path) for figure in answer["figures"] for path in figure["files"]]
    assert sorted(path.name for path in files) == ["fig-11.png", "fig-11.svg", "fig-12.png", "fig-12.svg"]
    assert all(path.stat().st_size > 1000 for path in files)


def test_all_draws_what_it_can_and_names_the_rest(run, tmp_path):
    fill(tmp_path / "store", "quick", labels=["repeated keys"], designed=False)
    code, out, err = run("figures", "store", "all", "--scale", "quick", "--json")
    answer = json.loads(out)
    assert (code, len(err.splitlines())) == (0, len(FIGURES))
    assert [figure["name"] for figure in answer["figures"]] == ["fig-2", "fig-18"]
    assert len(answer["skipped"]) == len(FIGURES) - 2
    assert all("recallscope reproduce" in figure["why"] for figure in answer["skipped"])
    assert {path.stem for path in Path("figures").iterdir()} == {"fig-2", "fig-18"}


def test_what_cannot_be_drawn_is_refused_in_one_paragraph(run, tmp_path):
    fill(tmp_path / "empty", "quick", labels=[], designed=False)
    command = "recallscope reproduce dn-grid --scale quick --store empty"
    refused(run("figures", "empty", "fig-1", "--scale", "quick"), command)
    refused(run("figures", "empty", "dn-grid", "--scale", "quick"), command)
    refused(run("figures", "empty", "fig1"), "Did you mean fig-1")
    refused(run("figures", "empty", "heds"), "heads")
    refused(run("figures", "fig-1"), "Name a store", "--list")
    refused(run("figures"), "fig-1", "--list")


def test_drawing_leaves_torch_alone(tmp_path):
    """In a fresh interpreter, as the suite itself has torch loaded."""
    fill(tmp_path / "store", "quick", labels=["the authors' small example, linear", "mechanism"], designed=False)
    code = (
        "import sys\n"
        "from recallscope.cli.main import main\n"
        "code = main(['figures', 'store', 'laws', 'fig-4', 'fig-14', '--scale', 'quick', '--out', 'out'])\n"
        "assert code == 0, code\n"
        "assert 'torch' not in sys.modules, 'torch was loaded'\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def runs(tmp_path):
    return fill(tmp_path / "store", "quick", labels=["large vocabularies"], designed=False)


def test_figures_are_drawn_whenever_they_are_asked_for(runs, tmp_path, capsys):
    figures, out = find_figures("fig-11"), tmp_path / "out"
    first = draw_figures(runs, figures, out)
    assert first == {"fig-11": [out / "fig-11.png", out / "fig-11.svg"]}
    assert capsys.readouterr().err == "[1/1] fig-11\n"
    data = (out / "fig-11.png").read_bytes()
    (out / "fig-11.png").write_bytes(data[:100])
    assert draw_figures(runs, figures, out) == first
    assert (out / "fig-11.png").read_bytes() == data


@pytest.mark.slow
def test_two_processes_draw_the_same_bytes(runs, tmp_path):
    names = ("fig-2", "fig-11", "fig-12", "fig-6")
    jobs = {name: figure_job(paper_figures()[name], "files") for name in names}
    one, two = (do_jobs(runs, jobs, workers) for workers in (1, 2))
    assert list(two) == list(names)
    assert one == two
