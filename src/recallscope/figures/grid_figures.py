"""Figures made of accuracy grids: D and N, heads, seeds."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.paper_runs import PaperRuns
from recallscope.analysis.planned import law_grid, planned_grid
from recallscope.analysis.seeds import convergence_by_best, convergence_grid
from recallscope.figures.accuracy_panels import draw_bar, draw_grid, draw_missing
from recallscope.figures.curve_panels import draw_convergence
from recallscope.figures.sources import regime_part, regime_words, regimes_here, source_line, why_empty, write_source
from recallscope.figures.style import PAGE, figure_style
from recallscope.sweeps.paper_grids import FULL_EXAMPLE, PATTERNS, REGIMES, Part, part_label
from recallscope.theory.law import find_law


def dims_figure(runs: PaperRuns) -> Figure:
    """Designed, predicted, trained linear, trained full over D and N.   Paper: Fig. 1 (`fig:scaling-laws-2d-dims`)."""
    return _dims(runs, ("i", "ii"))


def all_dims_figure(runs: PaperRuns) -> Figure:
    """The same for three regimes.   Paper: Fig. 7 (`app-fig:scaling-laws-2d-dims`)."""
    return _dims(runs, tuple(REGIMES))


def _dims(runs: PaperRuns, wanted: Sequence[str]) -> Figure:
    regimes = regimes_here(runs, wanted)
    parts = {regime: [regime_part(runs, model, "mqar", regime) for model in ("linear", "full")] for regime in regimes}
    labels = [part.label for pair in parts.values() for part in pair if part]
    text = source_line(runs, "dn-grid", labels, [part_label("designed", "mqar", regime) for regime in regimes])
    with figure_style():
        figure = Figure(figsize=(1.2 * PAGE, 2.1 * len(regimes) + 0.5), layout="constrained")
        rows = figure.subplots(len(regimes), 4, squeeze=False)
        for regime, row in zip(regimes, rows, strict=True):
            linear, full = parts[regime]
            circuits = runs.designed(part_label("designed", "mqar", regime))
            if circuits:
                draw_grid(AccuracyGrid.from_circuits(circuits), row[0])
            else:
                draw_missing(row[0], why="not measured yet")
            if linear:
                draw_grid(law_grid(find_law("trained"), linear), row[1])
            draw_part(runs, linear, row[2])
            draw_part(runs, full, row[3])
            if regime != regimes[-1]:
                for ax in row:
                    ax.set_xlabel("")
            row[0].set_ylabel(f"{regime_words(regime)}\n$N$")
        titles = ("(a) designed", "(b) theory, Thm 4.2", "(c) trained, linear", "(d) trained, full")
        for ax, title in zip(rows[0], titles, strict=True):
            ax.set_title(title)
        draw_bar(figure, rows.flat)
        write_source(figure, f"{text}; best of seeds; hatched: no run yet; white: $N>D$")
    return figure


def draw_part(
    runs: PaperRuns, part: Part | None, ax: Axes, axes: Sequence[str] = ("embed_dim", "state_dim"), title: str = ""
) -> Axes:
    """The best of seeds of a part, or why there is nothing to see."""
    rows = runs.rows(part.label) if part else []
    if part is None or not rows:
        return draw_missing(ax, title=title, why=why_empty(runs, part))
    return draw_grid(planned_grid(part, rows, axes), ax, title=title)


def heads_figure(runs: PaperRuns) -> Figure:
    """N-M grids of the four patterns.   Paper: Fig. 6 (`fig:multi-head-scaling-laws_`)."""
    text = source_line(runs, "heads", PATTERNS)
    with figure_style():
        figure = Figure(figsize=(1.2 * PAGE, 2.5), layout="constrained")
        axes = figure.subplots(1, len(PATTERNS))
        for letter, pattern, ax in zip("abcd", PATTERNS, axes, strict=True):
            title = f"({letter}) {pattern}"
            draw_part(runs, runs.parts.get(pattern), ax, ("state_dim", "num_heads"), title)
        draw_bar(figure, axes)
        write_source(figure, f"{text}; best of seeds; $N$ is the state of one head, $M$ the number of heads")
    return figure


def seed_grids_figure(runs: PaperRuns) -> Figure:
    """The full model's grid, seed by seed, and the best of them.   Paper: Fig. 19 (`app-fig:seed-grids`)."""
    text = source_line(runs, "seeds", (FULL_EXAMPLE,))
    part, rows = runs.parts[FULL_EXAMPLE], runs.rows(FULL_EXAMPLE)
    seeds = sorted({row["seed"] for row in rows})
    with figure_style():
        figure = Figure(figsize=(min(2.0 * (len(seeds) + 1) + 0.6, 1.7 * PAGE), 2.5), layout="constrained")
        axes = figure.subplots(1, len(seeds) + 1)
        for seed, ax in zip(seeds, axes, strict=False):
            draw_grid(planned_grid(part, rows, reduce="seed", seed=seed), ax, title=f"seed {seed}")
        draw_grid(planned_grid(part, rows), axes[-1], title="best of seeds")
        draw_bar(figure, axes)
        write_source(figure, text)
    return figure


def reliability_figure(runs: PaperRuns) -> Figure:
    """How many seeds converge, by cell and by its best.   Paper: Fig. 20 (`app-fig:seed-reliability`)."""
    text = source_line(runs, "seeds", (FULL_EXAMPLE,))
    rows = runs.rows(FULL_EXAMPLE)
    with figure_style():
        figure = Figure(figsize=(PAGE, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        draw_grid(convergence_grid(rows), left, title="By cell")
        draw_bar(figure, [left], label="share of seeds converged")
        draw_convergence(convergence_by_best(rows), right)
        write_source(figure, f"{text}; converged: accuracy of .1 or more; above the bars: seeds")
    return figure
