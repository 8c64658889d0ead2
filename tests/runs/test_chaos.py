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
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "200"))  # of the slow test, and half as many with workers that fork


def check(report, folder, rounds):
    """The disturbed sweep is as one that was not, bit for bit."""
    assert sum(report["kills"].values()) == rounds
    assert report["last_sweep"]["failed"] == 0
    assert report["finished_twice"] == []
    assert report["verify_clean"]
    finish_sweep(start_sweep(folder / "grid.toml", folder / "undisturbed", "--save-weights"), timeout=3600)
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


@pytest.mark.parametrize(
    ("rounds", "forks"),
    [
        (3, False),
        (1, True),
        pytest.param(ROUNDS, False, marks=[pytest.mark.slow, pytest.mark.timeout(7200)]),
        pytest.param(ROUNDS // 2, True, marks=[pytest.mark.slow, pytest.mark.timeout(7200)]),
    ],
)
def test_kills_lose_nothing_and_leave_no_child_behind(rounds, forks, folder):
    """What the long versions found is kept in results/sweeps/chaos.json."""
    many = rounds > 3
    grid = grid_file(folder, max(300, 80 * rounds) if forks else max(100, 6 * rounds), forks=forks,
                     seeds=8 if many else 1 if forks else 4)  # fmt: skip
    report = chaos(grid, folder / "disturbed", rounds=rounds, seed=3 if forks else 2)
    before = set(children_left(folder))
    check(report, folder, rounds)
    assert set(children_left(folder)) <= before  # the sweeps that ended took theirs with them
    if many:
        assert report["interrupted"] >= min(30, rounds // 3)
        kept = json.loads(RESULT.read_text())
        kept["workers that fork" if forks else "workers"] = report | {"records_equal_undisturbed": True}
        RESULT.write_text(json.dumps(kept, indent=1) + "\n")
