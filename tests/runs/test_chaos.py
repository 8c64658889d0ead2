"""Killed at random moments, a sweep loses nothing, does nothing twice, and ends with the same records and weights."""

import contextlib
import json
import os
import random
import signal
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tiny_sweeps import children, children_left, finish_sweep, grid_file, records, start_sweep, workers_of

from recallscope.runs.leases import read_attempts
from recallscope.runs.store import RunStore
from recallscope.runs.upkeep import verify

RESULT = Path(__file__).resolve().parents[2] / "results" / "sweeps" / "chaos.json"
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "200"))  # of the slow test, and half as many with workers that fork


def chaos(grid: Path, store: Path, *, rounds: int, seed: int) -> dict:
    """Start the sweep, kill driver, worker, fork server or all at a random moment, repeat; at last let it finish.

    Every round hits a driver that lives: a sweep that is done before all rounds are is an error of the caller.
    """
    luck = random.Random(seed)
    kills = {"driver": 0, "worker": 0, "server": 0, "all": 0}
    early = 0
    began = time.monotonic()
    for _ in range(rounds):
        process = start_sweep(grid, store, "--save-weights")
        hasty = luck.random() < 0.3
        if hasty:  # while it starts, plans, claims or loads torch
            time.sleep(luck.uniform(0, 1.5))
        else:
            _wait_for_work(process, store)
            time.sleep(luck.uniform(0, 0.6))
        early += hasty
        assert process.poll() is None, f"the sweep ended before round {sum(kills.values()) + 1}: give it more to do"
        victim = luck.choice(list(kills))
        kills[victim] += 1
        workers, servers = workers_of(process.pid), children(process.pid)
        targets = {"worker": workers, "server": servers}.get(victim)
        if targets:
            _kill(luck.choice(targets))
            time.sleep(luck.uniform(0, 0.5))
        if victim == "all":
            for pid in workers + servers:
                _kill(pid)
        _kill(process.pid)
        process.communicate()
    last = finish_sweep(start_sweep(grid, store, "--save-weights"), timeout=3600)
    attempts = {run: read_attempts(RunStore(store).folder(run)) for run in records(store)}
    return {
        "rounds": rounds,
        "seed": seed,
        "kills": kills,
        "kills_while_starting": early,
        "runs": len(attempts),
        "interrupted": sum(sum(entry["event"] == "started" for entry in log) > 1 for log in attempts.values()),
        "tries": sum(entry["event"] == "started" for log in attempts.values() for entry in log),
        "finished_twice": [
            run for run, log in attempts.items() if sum(entry["event"].startswith("finished") for entry in log) > 1
        ],
        "last_sweep": last,
        "verify_clean": verify(RunStore(store)).clean,
        "set_aside": len(list((store / "damaged").iterdir())) if (store / "damaged").exists() else 0,
        "seconds": round(time.monotonic() - began, 1),
    }


def _wait_for_work(process, store: Path) -> None:
    """Until the workers of this sweep have begun a run, or there is nothing left to do."""
    deadline = time.monotonic() + 30
    while process.poll() is None and time.monotonic() < deadline:
        mine = set(workers_of(process.pid))
        logs = [read_attempts(folder) for folder in (store / "runs").glob("*")]
        if any(entry["pid"] in mine for log in logs for entry in log):
            return
        time.sleep(0.05)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


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
