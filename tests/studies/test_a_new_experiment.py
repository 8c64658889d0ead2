"""Adding an experiment is one file, named in RECALLSCOPE_PLUGINS; or one file and one line in the package."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import recallscope
from commands import Command

SOURCE = Path(recallscope.__file__).parent
EXPERIMENT = """
from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.studies.experiment import experiment, part
from recallscope.studies.claims import Check, Ruling
from recallscope.studies.paper_runs import draw_part, sheet, source_line
from recallscope.presets import Preset

TINY = Preset(
    "a run of a second",
    {"kind": "mqar", "vocab_size": 16, "num_facts": 2},
    {"kind": "linear_mamba", "embed_dim": 8, "state_dim": 4},
    {"batch_size": 8, "warmup_steps": 2, "flat_steps": 5, "decay_steps": 5, "eval_every": 10, "eval_size": 20},
)
RUNS = "tiny runs"


@experiment("tiny", "does one file make an experiment?", claims=("rem-4.3",), presets={"tiny-run": TINY})
def tiny(scale):
    yield part(RUNS, TINY, axes={"embed_dim": [4, 8] if scale == "quick" else [4, 8, 16], "seed": [0]}, cut="tiny")


@tiny.findings
def they_ran(runs):
    check = Check("rem-4.3", "Did they run?", "nothing", "tiny-figure")
    rows = runs.rows(RUNS)
    found = check.answer(f"{len(rows)} runs", Ruling("holds", "any run"), "counted")
    yield found if len(rows) else check.untested("no runs")


@tiny.law_cells
def cells(runs):
    return {"tiny cells": runs.rows(RUNS)}


@tiny.figure("tiny-figure", "accuracy of tiny runs")
def tiny_figure(runs):
    from recallscope.figures.style import COLUMN

    with sheet(COLUMN, 2, source_line(runs, tiny.name, (RUNS,))) as figure:
        draw_part(runs, runs.parts[RUNS], figure.subplots())
    return figure
"""


@pytest.fixture(params=["plugin", pytest.param("package", marks=pytest.mark.slow)])
def recallscope_with_it(request, tmp_path):
    """The command line in a process of its own that knows the new file, and a folder to work in."""
    if request.param == "plugin":
        file = tmp_path / "my_experiment.py"
        file.write_text(EXPERIMENT)

        def forked(*arguments):
            done = Command(*arguments, cwd=tmp_path, env={"RECALLSCOPE_PLUGINS": str(file)})
            assert done.wait() == 0, done.stderr
            return done.stdout

        return forked, tmp_path
    skipped = shutil.ignore_patterns("__pycache__")
    package = shutil.copytree(SOURCE, tmp_path / "src" / "recallscope", ignore=skipped)
    (package / "studies" / "own" / "tiny.py").write_text(EXPERIMENT)
    table = package / "studies" / "experiment.py"
    last = '        "longer": "recallscope.studies.own.longer:longer",\n'
    assert last in table.read_text()
    table.write_text(table.read_text().replace(last, last + '        "tiny": "recallscope.studies.own.tiny:tiny",\n'))
    environment = os.environ | {"PYTHONPATH": str(package.parent)}

    def call(*arguments):
        done = subprocess.run(
            [sys.executable, "-m", "recallscope.cli.main", *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    return call, tmp_path


def test_a_new_file_is_listed_run_found_drawn_and_reported(recallscope_with_it):
    call, folder = recallscope_with_it
    rows = json.loads(call("reproduce", "--list", "--json"))["experiments"]
    assert [row["name"] for row in rows][:2] == ["dn-grid", "curves"]
    assert rows[-1]["name"] == "tiny"
    assert rows[-1]["shows"] == ["Rem 4.3"]
    assert {scale: at["runs"] for scale, at in rows[-1]["scales"].items()} == {"quick": 2, "small": 3, "paper": 3}
    assert rows[-1]["scales"]["quick"]["core_seconds"] > 0

    answer = json.loads(
        call("reproduce", "tiny", "--scale", "quick", "--store", "store", "--out", "out", "--workers", "0", "--json")
    )
    (finding,) = answer["findings"]["tiny"]
    assert (finding["ours"], finding["verdict"]) == ("2 runs", "holds")
    assert sorted(Path(path).name for path in answer["figures"]) == ["tiny-figure.png", "tiny-figure.svg"]
    assert all((folder / path).stat().st_size > 1000 for path in answer["figures"])

    assert "tiny-figure" in call("figures", "--list")
    call("report", "store", "--scale", "quick", "--markdown", "REPORT.md")
    page = (folder / "REPRODUCTION_APPENDIX.md").read_text(encoding="utf-8")
    assert (folder / "REPORT.md").exists()
    assert "Did they run?" in page
    assert "| tiny cells<br>2 settings |" in page
    assert (folder / "figures" / "tiny-figure.png").exists() or (folder / "figures" / "tiny-figure.svg").exists()


def test_its_preset_is_known_to_grids(recallscope_with_it):
    call, folder = recallscope_with_it
    (folder / "grid.toml").write_text('preset = "tiny-run"\n[axes]\nseed = [0, 1]\n')
    assert json.loads(call("sweep", "grid.toml", "--store", "s", "--dry-run", "--json"))["missing"] == 2
