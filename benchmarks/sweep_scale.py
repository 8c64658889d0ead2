"""python benchmarks/sweep_scale.py [--json] [--runs 100000] [--workers 1 8 64] [--drivers 1 4] [--folder PATH]
python benchmarks/sweep_scale.py --tables results/sweeps/scale.json     tables of docs/scaling.md, from a --json

What a large sweep costs beside its training: the real driver, leases, store and index, with runs that do nothing. Each
simulated worker notes its start, writes a record as long as a real one, and notes its end, as a worker process does,
but in the driver's process: what is measured is an upper bound of what the driver does, and all that the file system
does.

Every line is one sweep in a store of its own; several drivers share one store. Per run: wall time, processor time,
leases refused because another driver was first, records of others that were read. At the end: the index, the time to
plan the same sweep again with everything done, and the largest memory of a driver.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.records import Evaluation, RunRecord
from recallscope.runs import driver as driver_module
from recallscope.runs import leases
from recallscope.runs.driver import run_sweep
from recallscope.runs.engine import Event, Finished, Job
from recallscope.runs.grid import Grid
from recallscope.runs.leases import note_attempt
from recallscope.runs.plan import make_plan
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs
from recallscope.specs import RunSpec
from recallscope.tasks.associative_recall import MQARSpec

HISTORY = [Evaluation(step=250 * k, loss=1 / k, accuracy=k / 9) for k in range(1, 9)]


class NothingEngine:
    """Workers that finish at once. Each store write of a real worker is made, and timed apart from the driver's."""

    def __init__(self, store: RunStore, slots: int) -> None:
        self.store, self._slots, self._jobs = store, slots, dict[str, Job]()
        self.worker_seconds = 0.0

    @property
    def slots(self) -> int:
        return self._slots

    def start(self, job: Job) -> None:
        self._jobs[job.run] = job

    def wait(self, seconds: float) -> list[Event]:
        if not self._jobs:
            time.sleep(min(seconds, 0.05))
        began = time.thread_time()
        done: list[Event] = [Finished(self._work(job)) for job in self._jobs.values()]
        self.worker_seconds += time.thread_time() - began
        self._jobs.clear()
        return done

    def _work(self, job: Job) -> str:
        note_attempt(self.store.folder(job.run), "started")
        record = RunRecord(
            run=job.run, spec=job.spec, test_accuracy=0.5, val_accuracy=0.5, test_queries=160_000, best_step=2000,
            steps=2000, seconds=8.25, history=HISTORY, environment={"torch": "none"},
        )  # fmt: skip
        self.store.put(record)
        note_attempt(self.store.folder(job.run), "finished")
        return job.run

    def cancel(self, run: str) -> None:
        self._jobs.pop(run, None)

    def close(self) -> None:
        pass


def grid_of(runs: int) -> Grid:
    """Cells of equal cost: five sizes, and as many seeds as it takes."""
    base = RunSpec(task=MQARSpec(vocab_size=512, num_facts=16), model=LinearMambaSpec(embed_dim=32, state_dim=4))
    return Grid.around(base, axes={"state_dim": [4, 8, 12, 16, 20], "seed": list(range(-(-runs // 5)))})


def counted(owner: Any, name: str, counts: Counter[str], label: str) -> None:
    """Count the calls of a function, its refusals, and the processor time it takes."""
    plain = getattr(owner, name)

    def call(*arguments: Any, **words: Any) -> Any:
        began = time.thread_time()
        found = plain(*arguments, **words)
        counts[label] += 1
        counts[f"{label}_seconds"] += time.thread_time() - began  # type: ignore[assignment]
        counts[f"{label}_refused"] += found is None
        return found

    setattr(owner, name, call)


def drive(folder: Path, runs: int, slots: int) -> dict[str, float]:
    """One driver over the store; what it did, as plain numbers."""
    counts: Counter[str] = Counter()
    counted(RunStore, "lease", counts, "leases")
    counted(RunStore, "get", counts, "records_read")
    counted(leases.Lease, "renew", counts, "renewals")
    counted(driver_module, "extend_index", counts, "index_written")
    store = RunStore(folder, create=True)
    began, processor = time.perf_counter(), time.process_time()
    cells = grid_of(runs).cells()
    planned = time.perf_counter()
    engine = NothingEngine(store, slots)
    outcome = run_sweep(cells, store, engine=engine)
    ended = time.perf_counter()
    return {
        "done": outcome.done,
        "skipped": outcome.skipped,
        "failed": outcome.failed,
        "grid_seconds": planned - began,
        "wall_seconds": ended - planned,
        "cpu_seconds": time.process_time() - processor,
        "worker_cpu_seconds": engine.worker_seconds,
        "leases": counts["leases"] - counts["leases_refused"],
        "leases_refused": counts["leases_refused"],
        "records_read": counts["records_read"],
        "renewals": counts["renewals"],
        "index_written": counts["index_written"],
        "index_cpu_seconds": counts["index_written_seconds"],
        "memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def sweep(runs: int, slots: int, drivers: int, home: Path | None) -> dict[str, float]:
    """One sweep by so many drivers at once, each with so many workers, in a store of its own."""
    with tempfile.TemporaryDirectory(dir=home) as temporary:
        folder = Path(temporary) / "store"
        RunStore(folder, create=True)
        command = [sys.executable, __file__, "--drive", str(folder), "--runs", str(runs), "--workers", str(slots)]
        processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(drivers)]
        answers = [json.loads(process.communicate()[0]) for process in processes]
        total = Counter[str]()
        for answer in answers:
            total.update(answer)
        store = RunStore(folder)
        cells = grid_of(runs).cells()
        assert total["done"] == len(cells), "a run was lost, or done twice"
        began = time.process_time()
        assert not make_plan(cells, store).missing
        again = time.process_time() - began
        began = time.process_time()
        assert len(find_runs(store)) == len(cells)
        listed = time.process_time() - began
        size = (folder / "index.sqlite").stat().st_size
        left = sum(len(leases.lease_files(store.folder(cell.run))) for cell in cells[:200])
    each = 1000 / len(cells)
    return {
        "runs": len(cells),
        "workers": slots,
        "drivers": drivers,
        "wall_ms": round(each * max(answer["wall_seconds"] for answer in answers), 3),
        "driver_cpu_ms": round(each * (total["cpu_seconds"] - total["worker_cpu_seconds"]), 3),
        "worker_cpu_ms": round(each * total["worker_cpu_seconds"], 3),
        "leases": round(total["leases"] / len(cells), 3),
        "leases_refused": round(total["leases_refused"] / len(cells), 3),
        "records_read": round(total["records_read"] / len(cells), 3),
        "renewals": total["renewals"],
        "index_written": total["index_written"],
        "index_cpu_seconds": round(total["index_cpu_seconds"], 2),
        "index_mb": round(size / 2**20, 2),
        "leases_left": left,
        "plan_again_seconds": round(again, 2),
        "list_seconds": round(listed, 2),
        "memory_mb": round(max(answer["memory_mb"] for answer in answers), 1),
    }


def renewal_ms(home: Path | None, count: int = 200) -> float:
    """Processor time to renew one lease, which a driver does every ten seconds for every run that is under way."""
    with tempfile.TemporaryDirectory(dir=home) as temporary:
        held = [leases.try_lease(Path(temporary) / str(number)) for number in range(count)]
        began = time.process_time()
        assert all(lease is not None and lease.renew() for lease in held)
        return round(1000 * (time.process_time() - began) / count, 4)


COLUMNS = {
    "runs": "runs", "drivers": "drivers", "workers": "workers each", "driver_cpu_ms": "drivers, ms per run",
    "worker_cpu_ms": "worker's writes, ms per run", "leases_refused": "leases refused per run",
    "records_read": "records read per run", "index_written": "indexes written", "index_cpu_seconds": "for them, s",
    "index_mb": "index, MB", "list_seconds": "list, s", "plan_again_seconds": "plan again, s",
    "memory_mb": "memory, MB",
}  # fmt: skip


def tables(measured: dict[str, Any]) -> str:
    """Overhead by size of the sweep, drivers and workers; and how many workers one driver keeps busy in half its time.

    Processor time throughout, as the disk is another one for everybody.
    """
    lines = [f"| {' | '.join(COLUMNS.values())} |", "|" + "---:|" * len(COLUMNS)]
    lines += [f"| {' | '.join(f'{row[name]:,}' for name in COLUMNS)} |" for row in measured["sweeps"]]
    each = max(row["driver_cpu_ms"] for row in measured["sweeps"] if row["drivers"] == 1)
    renewal = measured["renewal_cpu_ms"] / (leases.LEASE_SECONDS / 6)  # the driver renews six times a lease
    lines += ["", f"| a run takes | the driver's {each:.1f} ms are of it | workers that one driver keeps busy |"]
    lines += ["|---:|---:|---:|"]
    for seconds, name in ((1, "1 s"), (10, "10 s"), (60, "1 min")):
        lines.append(f"| {name} | {each / seconds / 10:.2g} % | {int(500 / (each / seconds + renewal)):,} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--runs", type=int, nargs="+", default=[500, 2000], help="runs of a sweep; several to compare")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8, 64], help="simulated workers of a driver")
    parser.add_argument("--drivers", type=int, nargs="+", default=[1, 4], help="drivers at once on one store")
    parser.add_argument("--folder", type=Path, help="where the stores are made: the file system that is measured")
    parser.add_argument("--tables", type=Path, metavar="FILE", help="measure nothing; tables of this --json output")
    parser.add_argument("--drive", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        print(json.dumps(drive(options.drive, options.runs[0], options.workers[0])))
        return
    if options.tables:
        print(tables(json.loads(options.tables.read_text())))
        return
    about = {"load_before": round(os.getloadavg()[0], 2), "renewal_cpu_ms": renewal_ms(options.folder)}
    rows = []
    for runs in options.runs:
        for drivers in options.drivers:
            for slots in options.workers:
                rows.append(sweep(runs, slots, drivers, options.folder))
                print(f"{runs} runs, {drivers} drivers, {slots} workers each: done", file=sys.stderr)
    measured = {"benchmark": "sweep_scale", **about, "sweeps": rows}
    print(json.dumps(measured, indent=1) if options.json else tables(measured))


if __name__ == "__main__":
    main()
