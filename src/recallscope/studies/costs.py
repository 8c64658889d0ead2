"""What experiments cost, estimated from their amount of work at one measured rate; the table of docs/scaling.md."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from recallscope.runs.grid import Grid
from recallscope.runs.plan import estimated_cost
from recallscope.specs import RunSpec
from recallscope.studies.experiment import Scale, experiments, find_experiment
from recallscope.studies.paper_runs import PaperRuns

# Over the 1,265 runs of results/paper, one thread of the machine they were made on. Single experiments are up to five
# times cheaper (minimality: 0.013) or dearer (fresh-cells: 0.30), as small runs spend most of their time on overhead.
SECONDS_PER_BILLION = 0.059  # multiplications of `estimated_cost`
WORKERS = (16, 64, 256, 1024)
HOUR, DAY = 3_600, 86_400


@cache
def core_seconds(experiment: str, scale: Scale) -> float:
    """Estimated time of all runs of an experiment at a scale, on one core."""
    return sum(_seconds_of_grid(part.grid) for part in find_experiment(experiment).parts(scale))


def seconds_of(run: RunSpec) -> float:
    """Estimated time of one run, on one core."""
    return estimated_cost(run) / 1e9 * SECONDS_PER_BILLION


def _seconds_of_grid(grid: Grid) -> float:
    """All runs of a grid; those that differ in the seed cost the same."""
    seeds = grid.axes.get("seed", (0,))
    one = replace(grid, axes={**grid.axes, "seed": seeds[:1]}) if "seed" in grid.axes else grid
    return len(seeds) * sum(seconds_of(cell.spec) for cell in one.cells())


def schedule(seconds: Iterable[float], workers: int) -> float:
    """Wall time of a sweep that starts its longest runs first, as the driver does."""
    free = [0.0] * workers
    for length in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def costs_table(runs: PaperRuns, page: str = "") -> Iterator[str]:
    """What the paper's own axes cost, by experiment; runs that several share count with the first."""
    yield f"| experiment | runs | core days | longest run, hours | {' | '.join(f'days on {w}' for w in WORKERS)} |"
    yield "|---|" + "---:|" * (3 + len(WORKERS))
    every: dict[str, float] = {}
    by_experiment: dict[str, list[float]] = {}
    for one in experiments():
        new = {run: seconds_of(cell.spec) for run, cell in one.cells("paper").items() if run not in every}
        every |= new
        by_experiment[one.name] = list(new.values())
    for name, lengths in (by_experiment | {"**all**": list(every.values())}).items():
        if lengths:
            days = " | ".join(f"{schedule(lengths, workers) / DAY:.2f}" for workers in WORKERS)
            yield f"| {name} | {len(lengths):,} | {sum(lengths) / DAY:.2f} | {max(lengths) / HOUR:.1f} | {days} |"
