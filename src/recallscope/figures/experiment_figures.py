"""Figures of single experiments: large vocabularies, repeated keys, the ladder; and one of ours, laws against runs."""

from __future__ import annotations

from matplotlib.figure import Figure

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.ladder import ladder
from recallscope.analysis.law_points import law_points
from recallscope.analysis.paper_runs import PaperRuns
from recallscope.analysis.planned import planned_grid
from recallscope.analysis.vocabulary_slopes import vocabulary_slopes
from recallscope.figures.accuracy_panels import draw_bar, draw_grid
from recallscope.figures.curve_panels import (
    draw_ladder,
    draw_law_points,
    draw_repeats,
    draw_slopes,
    draw_vocabularies,
)
from recallscope.figures.sources import source_line, write_source
from recallscope.figures.style import BLUE, COLUMN, GREEN, PAGE, VERMILION, figure_style
from recallscope.sweeps.paper_grids import EXAMPLE, LADDER, REGIMES, REPEATS, VOCABULARIES, part_label
from recallscope.theory.law import find_law

COLOURS = dict(zip(REGIMES, (BLUE, VERMILION, GREEN), strict=True))
SHOWN_LAWS = {
    "unified": r"unified law as printed, $\sqrt{2\,\log V}$",
    "unified-mv": "unified law with $m_V$",
    "trained-sharing": "sharing law (ours)",
}


def large_vocab_figure(runs: PaperRuns) -> Figure:
    """Accuracy over V and L.   Paper: Fig. 11 (`app-fig:large-vocab`)."""
    text = source_line(runs, "large-vocab", (VOCABULARIES,))
    grid = planned_grid(runs.parts[VOCABULARIES], runs.rows(VOCABULARIES), ("vocab_size", "length"))
    with figure_style():
        figure = Figure(figsize=(0.75 * PAGE, 2.8), layout="constrained")
        ax = figure.subplots()
        title = f"linear, $D={grid.shared['embed_dim']}$, $N={grid.shared['state_dim']}$, $N_f=L/4$"
        draw_grid(grid, ax, title=title, box_aspect=None)
        draw_bar(figure, [ax])
        write_source(figure, text)
    return figure


def vocab_curves_figure(runs: PaperRuns) -> Figure:
    """Accuracy against V, and its normal inverse against m_V.   Paper: Fig. 12 (`app-fig:large-vocab-curves`)."""
    text = source_line(runs, "large-vocab", (VOCABULARIES,))
    slopes = vocabulary_slopes(runs.rows(VOCABULARIES))
    with figure_style():
        figure = Figure(figsize=(PAGE, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        draw_vocabularies(slopes, left)
        draw_slopes(slopes, right)
        write_source(figure, f"{text}; ±: standard error of the slope")
    return figure


def repeated_keys_figure(runs: PaperRuns) -> Figure:
    """Accuracy over depth and times a key is written.   Paper: Fig. 18 (`fig:mqar-keys`)."""
    text = source_line(runs, "repeated-keys", (REPEATS,))
    grid = planned_grid(runs.parts[REPEATS], runs.rows(REPEATS), ("num_layers", "key_repeats"))
    with figure_style():
        figure = Figure(figsize=(PAGE, 2.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        draw_grid(grid, left, title="Accuracy")
        draw_bar(figure, [left])
        draw_repeats(grid, right)
        write_source(figure, text)
    return figure


def ladder_figure(runs: PaperRuns) -> Figure:
    """The ablation ladder as bars.   Paper: Fig. 17 (`app-fig:circuit-minimality`), Tab. 8 (`fig:mqar_ablation`)."""
    text = source_line(runs, "minimality", (LADDER,))
    rows = runs.rows(LADDER)
    rungs = ladder(rows)
    with figure_style():
        figure = Figure(figsize=(1.3 * COLUMN, 2.9), layout="constrained")
        ax = figure.subplots()
        draw_ladder(rungs, rows[0]["num_facts"], ax)
        ax.set_title("What can be taken away")
        says = "; ".join(f"{rung.name}: {rung.says}" for rung in rungs)
        write_source(figure, f"{says}. Bars: mean, dots: seeds. {text}")
    return figure


def laws_figure(runs: PaperRuns) -> Figure:
    """Predicted against measured accuracy on every trained linear cell, for three laws."""
    labels = {part_label("linear", task, regime): regime for task in ("mqar", "ar") for regime in REGIMES}
    labels[EXAMPLE] = "iii"
    text = source_line(runs, "dn-grid", list(labels))
    grids = {label: AccuracyGrid.from_runs(rows) for label in labels if (rows := runs.rows(label))}
    markers = {label: "s" if label == EXAMPLE else "^" if " AR " in label else "o" for label in labels}
    with figure_style():
        figure = Figure(figsize=(1.2 * PAGE, 3.3), layout="constrained")
        axes = figure.subplots(1, len(SHOWN_LAWS), sharey=True)
        for ax, (name, title) in zip(axes, SHOWN_LAWS.items(), strict=True):
            points = law_points(find_law(name), grids)
            said = f"{title}\nmean error {points.mean_error:.3f}, {points.cells} cells"
            colours = {label: COLOURS[regime] for label, regime in labels.items()}
            draw_law_points(points, ax, title=said, colours=colours, markers=markers)
        for ax in axes[1:]:
            ax.set_ylabel("")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
        write_source(figure, f"{text}; a dot is a cell, best of seeds; on the line a law is right")
    return figure
