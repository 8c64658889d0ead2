"""Write the tables of docs/scaling.md from measured costs and scale.json: python results/sweeps/scaling.py"""

import heapq
import json
import re
from collections.abc import Iterator
from pathlib import Path

from recallscope.paper.costs import measured_cost
from recallscope.paper.experiment import experiments
from recallscope.runs.plan import estimated_cost

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "scaling.md"
WORKERS = (16, 64, 256, 1024)
DAY, HOUR = 86_400, 3_600


def paper_runs() -> dict[str, dict[str, float]]:
    """Seconds of every run at the paper's own scale, by experiment; runs that several share count with the first.

    The cost of an experiment is measured or extrapolated (`recallscope.paper.costs`); its runs share it by their work.
    """
    seen: set[str] = set()
    found = {}
    for one in experiments():
        cells = one.cells("paper")
        work = {run: estimated_cost(cell.spec) for run, cell in cells.items()}
        rate = float(measured_cost(one.name, "paper")["core_seconds"]) / sum(work.values())
        found[one.name] = {run: rate * amount for run, amount in work.items() if run not in seen}
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
    """Overhead of the driver, by size of the sweep, drivers and workers."""
    yield "| runs | drivers | workers each | wall, ms per run | driver, CPU ms per run | worker's writes, CPU ms per run | leases refused per run | records read per run | index, MB | list, s | plan again, s | memory, MB |"
    yield "|" + "---:|" * 12
    for row in measured():
        yield (
            f"| {row['runs']:,} | {row['drivers']} | {row['workers']} | {row['wall_ms']:.1f} | {row['driver_cpu_ms']:.1f} | "
            f"{row['worker_cpu_ms']:.1f} | {row['leases_refused']:.2f} | {row['records_read']:.1f} | {row['index_mb']:.1f} | "
            f"{row['list_seconds']:.2f} | {row['plan_again_seconds']:.1f} | {row['memory_mb']:.0f} |"
        )


def measured() -> list[dict[str, float]]:
    """The sweeps of scale.json."""
    found: list[dict[str, float]] = json.loads((HERE / "scale.json").read_text())["sweeps"]
    return found


def limit_table() -> Iterator[str]:
    """How many workers one driver keeps busy: it may spend half of its time."""
    largest = max(row["runs"] for row in measured())
    alone = [row for row in measured() if row["runs"] == largest and row["drivers"] == 1]
    each = max(row["wall_ms"] for row in alone) / 1000
    yield f"| a run takes | overhead at {1000 * each:.0f} ms per run | workers that one driver keeps busy |"
    yield "|---:|---:|---:|"
    for seconds, name in ((1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h")):
        yield f"| {name} | {100 * each / seconds:.2g} % | {max(1, int(seconds / (2 * each))):,} |"


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
