"""What experiments cost on one core, estimated from their amount of work at one measured rate."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from recallscope.runs.grid import Grid
from recallscope.runs.plan import estimated_cost
from recallscope.specs import RunSpec
from recallscope.studies.experiment import Scale, find_experiment

# Over the 1,265 runs of results/paper, one thread of the machine they were made on. Single experiments are up to five
# times cheaper (minimality: 0.013) or dearer (fresh-cells: 0.30), as small runs spend most of their time on overhead.
SECONDS_PER_BILLION = 0.059  # multiplications of `estimated_cost`


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
