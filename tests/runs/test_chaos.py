"""Killed at random moments, a sweep loses nothing, does nothing twice, and ends with the very same records."""

import json
from pathlib import Path

import pytest
from chaos import chaos
from tiny_sweeps import finish_sweep, grid_file, records, start_sweep

RESULT = Path(__file__).resolve().parents[2] / "results" / "sweeps" / "chaos.json"


def check(report, disturbed, undisturbed, rounds):
    assert sum(report["kills"].values()) == rounds
    assert report["runs"] == 24
    assert report["last_sweep"]["failed"] == 0
    assert report["finished_twice"] == []
    assert report["verify_clean"]
    assert records(disturbed) == records(undisturbed)  # all but wall time and the machine's description


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_kills_lose_nothing(rounds, tmp_path):
    grid = grid_file(tmp_path, flat_steps=100)
    report = chaos(grid, tmp_path / "disturbed", rounds=rounds, seed=1)
    finish_sweep(start_sweep(grid, tmp_path / "undisturbed"))
    check(report, tmp_path / "disturbed", tmp_path / "undisturbed", rounds)
    assert report["kills_while_unfinished"] >= max(1, rounds // 4), report


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_kills_lose_nothing(tmp_path):
    """The long version; what it found is kept in results/sweeps/chaos.json."""
    grid = grid_file(tmp_path, flat_steps=1000)
    report = chaos(grid, tmp_path / "disturbed", rounds=200, seed=2)
    finish_sweep(start_sweep(grid, tmp_path / "undisturbed"), timeout=1800)
    check(report, tmp_path / "disturbed", tmp_path / "undisturbed", 200)
    report["records_equal_undisturbed"] = True
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps(report, indent=1) + "\n")
