"""Write the tables of docs/scaling.md from estimated costs and scale.json: python results/sweeps/scaling.py"""

import heapq
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from recallscope.runs.leases import LEASE_SECONDS
from recallscope.runs.plan import estimated_cost
from recallscope.studies.costs import SECONDS_PER_BILLION
from recallscope.studies.experiment import experiments

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "scaling.md"
WORKERS = (16, 64, 256, 1024)
DAY, HOUR = 86_400, 3_600
RENEW_EVERY = LEASE_SECONDS / 6  # seconds; the driver's rule


def paper_runs() -> dict[str, dict[str, float]]:
    """Seconds of every run at the paper's own scale, by experiment; runs that several share count with the first.

    Estimated from the amount of work at one measured rate (`recallscope.studies.costs`).
    """
    seen: set[str] = set()
    found = {}
    for one in experiments():
        cells = one.cells("paper")
        new = {run: cell for run, cell in cells.items() if run not in seen}
        found[one.name] = {run: estimated_cost(cell.spec) / 1e9 * SECONDS_PER_BILLION for run, cell in new.items()}
        seen |= set(cells)
    return {name: runs for name, runs in found.items() if runs}


def schedule(seconds: list[float], workers: int) -> float:
    """Wall time of a sweep that starts its longest runs first, as the driver does."""
    free = [0.0] * workers
    for length in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def cost_table() -> Iterator[str]:
    """What the paper's own axes cost."""
    runs = paper_runs()
    yield f"| experiment | runs | core days | longest run, hours | {' | '.join(f'days on {w}' for w in WORKERS)} |"
    yield "|---|" + "---:|" * (3 + len(WORKERS))
    everything = [length for some in runs.values() for length in some.values()]
    for name, lengths in (*((name, list(some.values())) for name, some in runs.items()), ("**all**", everything)):
        days = " | ".join(f"{schedule(lengths, workers) / DAY:.2f}" for workers in WORKERS)
        yield f"| {name} | {len(lengths):,} | {sum(lengths) / DAY:.2f} | {max(lengths) / HOUR:.1f} | {days} |"


def scale_table() -> Iterator[str]:
    """Overhead of the driver, by size of the sweep, drivers and workers: processor time, as the disk's is another's."""
    columns = {
        "runs": "runs", "drivers": "drivers", "workers": "workers each", "driver_cpu_ms": "drivers, ms per run",
        "worker_cpu_ms": "worker's writes, ms per run", "leases_refused": "leases refused per run",
        "records_read": "records read per run", "index_written": "indexes written", "index_cpu_seconds": "for them, s",
        "index_mb": "index, MB", "list_seconds": "list, s", "plan_again_seconds": "plan again, s", "memory_mb": "memory, MB",
    }  # fmt: skip
    yield f"| {' | '.join(columns.values())} |"
    yield "|" + "---:|" * len(columns)
    for row in measured()["sweeps"]:
        yield f"| {' | '.join(f'{row[name]:,}' for name in columns)} |"


def measured() -> dict[str, Any]:
    """scale.json."""
    found: dict[str, Any] = json.loads((HERE / "scale.json").read_text())
    return found


def limit_table() -> Iterator[str]:
    """How many workers one driver keeps busy: it may spend half of its time, on runs and on their leases."""
    alone = [row for row in measured()["sweeps"] if row["drivers"] == 1]
    each, renewal = max(row["driver_cpu_ms"] for row in alone) / 1000, measured()["renewal_cpu_ms"] / 1000
    yield f"| a run takes | the driver's {1000 * each:.1f} ms are of it | workers that one driver keeps busy |"
    yield "|---:|---:|---:|"
    for seconds, name in ((1, "1 s"), (10, "10 s"), (60, "1 min")):
        busy = 0.5 / (each / seconds + renewal / RENEW_EVERY)
        yield f"| {name} | {100 * each / seconds:.2g} % | {int(busy):,} |"


TABLES = {"costs": cost_table, "scale": scale_table, "limits": limit_table}


def page(text: str) -> str:
    """The page with its tables made anew, each between its two comments."""
    for name, table in TABLES.items():
        between = re.compile(rf"(<!-- {name}: made by results/sweeps/scaling.py -->\n).*?(<!-- end -->)", re.DOTALL)
        assert between.search(text), f"docs/scaling.md has no place for {name}"
        text = between.sub(lambda found, made=table: f"{found[1]}\n{chr(10).join(made())}\n\n{found[2]}", text)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
