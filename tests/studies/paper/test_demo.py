"""What a newcomer sees first: the steps of `make demo`, and what `reproduce` prints for runs that are there."""

import json
import shlex

import pytest
from made_up import fill

from commands import script
from recallscope.runs.store import RunStore
from recallscope.studies.experiment import find_experiment
from recallscope.studies.paper_runs import PaperRuns

pytest.importorskip("torch")
STEPS = script("examples/demo.py").STEPS


def test_the_steps_of_the_demo_are_commands_that_fit_a_terminal(run, tmp_path, monkeypatch):
    """The trainings are only planned."""
    monkeypatch.chdir(tmp_path)
    for number, (title, duration, command) in enumerate(STEPS, 1):
        assert max(len(line) for line in (f"[{number}/3] {title}", f"{number} {duration:>7} {title}", command)) <= 80
        name, *arguments = shlex.split(command)
        assert name == "recallscope"
        code, out, err = run(*arguments, *(["--dry-run"] if "reproduce" in arguments else []))
        assert (code, err) == (0, "")
        assert out


@pytest.fixture(scope="module")
def quick(once):
    return PaperRuns(RunStore(once("made-up-quick", lambda folder: fill(folder, "quick"))), "quick")


def test_reproduce_prints_what_was_tested_and_counts_the_rest(run, quick, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    arguments = ["reproduce", "dn-grid", "--scale", "quick", "--store", quick.store.root, "--out", tmp_path]
    code, out, _ = run(*arguments, "--quiet")
    assert code == 0
    found = find_experiment("dn-grid").find(quick)
    left = [finding for finding in found if not finding.tested]
    assert left
    assert "not tested" not in out
    assert f"  {len(left)} more finding" in out
    assert "--scale small" in out
    assert out.count("    -> ") == len(found) - len(left)
    (sentence,) = find_experiment("dn-grid").summaries(quick)
    assert sentence in out.replace("\n", " ")
    assert out.splitlines()[-1] == f"Figures in {tmp_path}, as PNG and SVG: fig-1, fig-7, laws"
    assert max(map(len, out.splitlines()[:-1])) <= 80
    assert (tmp_path / "fig-7.png").exists()
    answer = json.loads(run(*arguments, "--json")[1])
    assert len(answer["findings"]["dn-grid"]) == len(found)
    assert answer["summaries"] == {"dn-grid": [sentence]}
