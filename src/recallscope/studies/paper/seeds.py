"""Seeds: how far those of the full model agree, and how many converge.

Paper: App. K.5 (`app-subsec:seeds`), Fig. 19 (`app-fig:seed-grids`), Fig. 20 (`app-fig:seed-reliability`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from pandas import DataFrame, concat

from recallscope.analysis.accuracy_grid import convergence_by_best, convergence_grid, planned_grid
from recallscope.analysis.table import CONVERGED, seeds_by
from recallscope.studies.claims import Check, Finding, by_distance
from recallscope.studies.dn_parts import AXES, FULL, FULL_EXAMPLE, FULL_GRIDS, full_parts
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.paper_runs import Caption, PaperRuns, sheet, source_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@experiment(
    "seeds", "one grid of the full model seed by seed, and how many seeds converge", claims=("fig-19", "fig-20")
)
def seeds(scale: Scale) -> Iterator[Part]:
    """Regime (iii) of the full model's D-N grids; at the quick scale a tiny task under the same label."""
    if scale == "quick":
        yield part(
            FULL_EXAMPLE, FULL, task={"vocab_size": 64, "num_facts": 4},
            train={"batch_size": 32, "flat_steps": 900, "decay_steps": 1000, "eval_size": 1000, "eval_every": 500},
            axes={"embed_dim": [8, 16], "state_dim": [4, 8], "seed": range(3)}, cut="tiny task",
        )  # fmt: skip
    yield from (one for one in full_parts(scale) if one.label == FULL_EXAMPLE)


@seeds.findings
def seed_findings(runs: PaperRuns) -> Iterator[Finding]:
    """Spread over seeds, and the share that converges."""
    said = "the boundary is the same for all seeds"
    spread_check = Check("fig-19", "Seeds of the full model agree but for failures", said, "fig-19")
    said = "most do; failures are isolated"
    share_check = Check("fig-20", "Most seeds converge where a setting can learn", said, "fig-20")
    cells = seeds_by(runs.rows(FULL_EXAMPLE), *AXES).values()
    found = [accuracies for accuracies in cells if len(accuracies) > 1]
    if not found:
        yield spread_check.untested("no setting has two seeds yet")
        yield share_check.untested("no setting has two seeds yet")
        return
    spread = np.array([np.ptp(values) for values in found])
    yield spread_check.answer(
        f"best minus worst seed {np.mean(spread):.3f} on average, {spread.max():.3f} at most",
        by_distance(f"median, {np.median(spread):.3f}", float(np.median(spread)), 0.03, 0.1),
        f"{len(found)} settings with {max(map(len, found))} seeds each",
        runs.missing(FULL_EXAMPLE),
    )
    able = [values for values in found if values.max() >= CONVERGED]
    converged = sum(int((values >= CONVERGED).sum()) for values in able)
    total = sum(map(len, able))
    share = converged / max(total, 1)
    yield share_check.answer(
        f"{converged} of {total} seeds ({share:.0%}) reach {CONVERGED}",
        by_distance("share of seeds that do not converge", 1 - share, 0.2, 0.5),
        f"{len(able)} settings whose best seed reaches {CONVERGED}",
        runs.missing(FULL_EXAMPLE),
    )


@seeds.law_cells
def full_cells(runs: PaperRuns) -> dict[str, DataFrame]:
    """The full model's grids."""
    return {label: runs.rows(label) for label in FULL_GRIDS.values()}


@seeds.figure("fig-19", "full model, seed by seed")
def seed_grids_figure(runs: PaperRuns) -> Figure:
    """The full model's grid, seed by seed, and the best of them.   Paper: Fig. 19 (`app-fig:seed-grids`)."""
    from recallscope.figures.accuracy_panels import draw_bar, draw_grid
    from recallscope.figures.style import PAGE

    text = source_line(runs, seeds.name, (FULL_EXAMPLE,))
    grid, rows = runs.parts[FULL_EXAMPLE].grid, runs.rows(FULL_EXAMPLE)
    numbers = sorted(set(rows["seed"]))
    spread = [np.ptp(values) for values in seeds_by(rows, *AXES).values() if len(values) > 1]
    caption = Caption(
        f"Seeds differ by {np.median(spread):.3f} at the median setting, by {np.max(spread):.3f} at most"
        if spread
        else "",
        "accuracy of full Mamba over width D and state size N; white: not part of the plan",
        f"{len(numbers)} seeds, where the paper has five",
        text,
    )
    with sheet(min(2.0 * (len(numbers) + 1) + 0.6, 1.7 * PAGE), 2.5, caption) as figure:
        axes = figure.subplots(1, len(numbers) + 1)
        for seed, ax in zip(numbers, axes, strict=False):
            draw_grid(planned_grid(grid, rows, reduce="seed", seed=seed), ax, title=f"seed {seed}")
        draw_grid(planned_grid(grid, rows), axes[-1], title="best of seeds")
        draw_bar(figure, axes)
    return figure


@seeds.figure("fig-20", "how many seeds converge")
def reliability_figure(runs: PaperRuns) -> Figure:
    """How many seeds converge, by cell and by its best.   Paper: Fig. 20 (`app-fig:seed-reliability`).

    All regimes that the store has, as every seed of regime (iii) converges at the small scale.
    """
    from recallscope.figures.accuracy_panels import draw_bar, draw_convergence, draw_grid
    from recallscope.figures.style import PAGE

    labels = [label for label in FULL_GRIDS.values() if len(runs.rows(label))] or [FULL_EXAMPLE]
    text = source_line(runs, seeds.name, labels)
    bins = convergence_by_best(concat([runs.rows(label).assign(regime=label) for label in labels]), ("regime", *AXES))
    total = sum(one.seeds for one in bins)
    caption = Caption(
        f"{total - sum(one.converged for one in bins)} of {total} seeds do not converge",
        "left: fraction of seeds that converge, over width D and state size N; right: the same by the best accuracy of "
        "a setting, with the number of seeds above each bar",
        f"a seed has converged if it left chance and its accuracy is at least {CONVERGED}",
        text,
    )
    with sheet(1.2 * PAGE, 2.5, caption) as figure:
        *grids, right = figure.subplots(1, len(labels) + 1)
        for label, ax in zip(labels, grids, strict=True):
            draw_grid(convergence_grid(runs.rows(label)), ax, title=label)
        draw_bar(figure, grids, label="fraction that converges")
        draw_convergence(bins, right)
    return figure
