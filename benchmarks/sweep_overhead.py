"""python benchmarks/sweep_overhead.py [--json] [--runs 12] [--long-runs 4]

Two promises of the local engine, measured on real sweeps in a temporary store:
  runs per minute of two workers against one, turn by turn, so that a busy machine slows both alike;
  supervising overhead with one worker and runs of ten seconds: the share of wall time between the first start and the
  last end that no training used, and the driver's own processor time over the same wall time.
Times between runs come from the runs' logs, so the start of the interpreters is not part of either number.
A second core that is busy with something else spoils the first number. `machine_ratio` is the same for a bare loop
that is supervised by nobody: what the machine had to give at the time. Well below 2, it says: measure again later.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.runs.driver import run_sweep
from recallscope.runs.grid import Grid
from recallscope.runs.leases import read_attempts
from recallscope.runs.store import RunStore
from recallscope.specs import RunSpec, TrainSpec
from recallscope.tasks.associative_recall import MQARSpec


def grid_of(runs: int, steps: int) -> Grid:
    """Runs of one size: nothing to gain from their order."""
    base = RunSpec(
        task=MQARSpec(vocab_size=256, num_facts=8),
        model=LinearMambaSpec(embed_dim=32, state_dim=16),
        train=TrainSpec(batch_size=64, flat_steps=steps, decay_steps=0, eval_every=500, eval_size=500),
    )
    return Grid.around(base, axes={"seed": list(range(runs))})


def sweep(runs: int, steps: int, workers: int) -> dict[str, float]:
    """One sweep in a store of its own: wall time from the first start to the last end, and what training took of it."""
    with tempfile.TemporaryDirectory() as folder:
        before = resource.getrusage(resource.RUSAGE_SELF)
        began = time.perf_counter()
        outcome = run_sweep(grid_of(runs, steps), Path(folder) / "store", workers=workers)
        whole = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_SELF)
        assert outcome.done == runs
        store = RunStore(Path(folder) / "store")
        log = [entry for run in store.names() for entry in read_attempts(store.folder(run))]
        starts = [entry["at"] for entry in log if entry["event"] == "started"]
        ends = [entry["at"] for entry in log if entry["event"] == "finished"]
        training = sum(record.seconds for record in store.records())
    driver = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": max(ends) - min(starts), "with_start": whole, "training": training, "driver_cpu": driver}


def machine_ratio() -> float:
    """How much faster two bare processes do twice the work of one, now."""
    command = [sys.executable, "-c", "sum(i * i for i in range(10_000_000))"]

    def wall(count: int) -> float:
        began = time.perf_counter()
        for process in [subprocess.Popen(command) for _ in range(count)]:
            process.wait()
        return time.perf_counter() - began

    return 2 * wall(1) / wall(2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, default=12, help="runs per sweep, for the ratio")
    parser.add_argument("--steps", type=int, default=600, help="steps of such a run")
    parser.add_argument("--turns", type=int, default=3, help="sweeps with one and with two workers, in turn")
    parser.add_argument("--long-runs", type=int, default=4, help="runs of some ten seconds, for the overhead")
    parser.add_argument("--long-seconds", type=float, default=10.0, help="how long these should take")
    options = parser.parse_args()

    load = os.getloadavg()[0]
    one, two, bare = [], [], []
    for _ in range(options.turns):
        bare.append(machine_ratio())
        one.append(sweep(options.runs, options.steps, 1))
        two.append(sweep(options.runs, options.steps, 2))
    wall_one, wall_two = (min(turn["wall"] for turn in turns) for turns in (one, two))
    per_step = min(turn["training"] for turn in one) / (options.runs * options.steps)
    long = sweep(options.long_runs, int(options.long_seconds / per_step), 1)
    result = {
        "benchmark": "sweep_overhead",
        "load_before": round(load, 2),
        "runs_per_minute_one_worker": round(60 * options.runs / wall_one, 1),
        "runs_per_minute_two_workers": round(60 * options.runs / wall_two, 1),
        "ratio": round(wall_one / wall_two, 3),
        "machine_ratio": round(max(bare), 3),
        "ratio_with_start": round(min(t["with_start"] for t in one) / min(t["with_start"] for t in two), 3),
        "long_run_seconds": round(long["training"] / options.long_runs, 2),
        "overhead": round(1 - long["training"] / long["wall"], 5),
        "driver_cpu_share": round(long["driver_cpu"] / long["wall"], 5),
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(f"load before: {result['load_before']}")
    print(
        f"runs per minute: {result['runs_per_minute_one_worker']} with one worker, "
        f"{result['runs_per_minute_two_workers']} with two: {result['ratio']:.2f}x "
        f"({result['ratio_with_start']:.2f}x with their start, {result['machine_ratio']:.2f}x for bare loops)"
    )
    print(
        f"runs of {result['long_run_seconds']} s: {100 * result['overhead']:.2f} % of wall time is not training, "
        f"the driver uses {100 * result['driver_cpu_share']:.2f} % of a core"
    )


if __name__ == "__main__":
    main()
