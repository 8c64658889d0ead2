"""Killed at random moments, a sweep loses nothing, does nothing twice, and ends with the same records and weights."""

import contextlib
import json
import os
import signal
from pathlib import Path

import pytest
from chaos import chaos
from safetensors.torch import load_file
from tiny_sweeps import children_left, finish_sweep, grid_file, records, start_sweep

RESULT = Path(__file__).resolve().parents[2] / "results" / "sweeps" / "chaos.json"


def check(report, folder, rounds):
    """The disturbed sweep is as one that was not, bit for bit."""
    assert sum(report["kills"].values()) == rounds
    assert report["last_sweep"]["failed"] == 0
    assert report["finished_twice"] == []
    assert report["verify_clean"]
    finish_sweep(start_sweep(folder / "grid.toml", folder / "undisturbed", "--save-weights"), timeout=1800)
    disturbed, undisturbed = records(folder / "disturbed"), records(folder / "undisturbed")
    assert disturbed == undisturbed  # all but wall time and the machine's description
    assert len(disturbed) == report["runs"]
    for run in disturbed:
        one, other = (
            load_file(folder / name / "runs" / run / "weights.safetensors") for name in ("disturbed", "undisturbed")
        )
        assert {name: tensor.tolist() for name, tensor in one.items()} == {n: t.tolist() for n, t in other.items()}


@pytest.fixture
def folder(tmp_path):
    yield tmp_path
    for pid in children_left(tmp_path):  # of workers that were killed together with their driver
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_kills_lose_nothing(rounds, folder):
    report = chaos(grid_file(folder, flat_steps=100 * rounds // 3), folder / "disturbed", rounds=rounds, seed=1)
    check(report, folder, rounds)


@pytest.mark.parametrize("rounds", [1, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_kills_of_workers_that_fork_lose_nothing_and_leave_no_child_behind(rounds, folder):
    grid = grid_file(folder, flat_steps=max(300, 80 * rounds), forks=True, seeds=1 if rounds < 10 else 8)
    report = chaos(grid, folder / "disturbed", rounds=rounds, seed=3)
    before = set(children_left(folder))
    check(report, folder, rounds)
    assert set(children_left(folder)) <= before  # the sweeps that ended took theirs with them
    assert rounds < 100 or report["interrupted"] >= 30


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_kills_lose_nothing(folder):
    """The long version; what it found is kept in results/sweeps/chaos.json."""
    report = chaos(grid_file(folder, flat_steps=1000, seeds=8), folder / "disturbed", rounds=200, seed=2)
    check(report, folder, 200)
    assert report["interrupted"] >= 30
    report["records_equal_undisturbed"] = True
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(report, indent=1) + "\n")
