"""Kill a sweep without mercy, again and again, and count what is left."""

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from tiny_sweeps import children, finish_sweep, records, start_sweep, workers_of

from recallscope.runs.leases import read_attempts
from recallscope.runs.store import RunStore
from recallscope.runs.upkeep import verify


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
