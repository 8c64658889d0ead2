"""Figures of the collapse: accuracy against 1/sigma, for one layer and several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from recallscope.analysis.collapse_curve import CollapseCurve, collapse_curve
from recallscope.analysis.paper_runs import PaperRuns
from recallscope.figures.accuracy_panels import draw_bar, draw_missing
from recallscope.figures.curve_panels import draw_collapse, draw_size_bar
from recallscope.figures.grid_figures import draw_part
from recallscope.figures.sources import regime_part, regime_words, regimes_here, source_line, why_empty, write_source
from recallscope.figures.style import PAGE, figure_style
from recallscope.sweeps.paper_grids import REGIMES, Part

# title, model, task, and the a of Rem 4.3; for the full model half of it, the paper's heuristic
COLUMNS = (
    ("(a) AR, linear", "linear", "ar", 1.0, "1"),
    ("(b) MQAR, linear", "linear", "mqar", 1.25, "5/4"),
    ("(c) MQAR, full", "full", "mqar", 0.625, "5/8"),
)
LAYERS = {"ar": ("layers AR", 1.0, "1"), "mqar": ("layers MQAR", 1.25, "5/4")}
LAYER_AXES = ("state_dim", "num_layers")
NOTE = "dashed: as printed; solid: fitted, its 95\u00a0% band from resampled cells"


def curves_figure(runs: PaperRuns) -> Figure:
    """Accuracy against 1/sigma in regime (i).   Paper: Fig. 4 (`fig:scaling-laws-1d-dims`)."""
    return _curves(runs, regimes_here(runs, ("i",))[:1], grids=False)


def grids_and_curves_figure(runs: PaperRuns) -> Figure:
    """The same below the grids it comes from.   Paper: Fig. 8 (`app-fig:scaling-laws-1d-dims`)."""
    return _curves(runs, regimes_here(runs, ("i",))[:1], grids=True)


def all_curves_figure(runs: PaperRuns) -> Figure:
    """The same in three regimes.   Paper: Fig. 9 (`app-fig:scaling-curves-regimes`)."""
    return _curves(runs, regimes_here(runs, tuple(REGIMES)), grids=False)


def _curves(runs: PaperRuns, regimes: Sequence[str], *, grids: bool) -> Figure:
    parts = [[regime_part(runs, model, task, regime) for _, model, task, *_ in COLUMNS] for regime in regimes]
    text = source_line(runs, "curves", [part.label for row in parts for part in row if part])
    height = 2.4 * (len(regimes) + grids) + 0.4
    with figure_style():
        figure = Figure(figsize=(1.15 * PAGE, height), layout="constrained")
        axes = figure.subplots(len(regimes) + grids, len(COLUMNS), squeeze=False)
        if grids:
            for part, ax in zip(parts[0], axes[0], strict=True):
                draw_part(runs, part, ax)
            draw_bar(figure, axes[0])
        curves = [[_curve(runs, part, column[3]) for part, column in zip(row, COLUMNS, strict=True)] for row in parts]
        sizes = [float(N) for row in curves for curve in row if curve for N in curve.group]
        span = (min(sizes), max(sizes))
        for regime, row, of_row, panels in zip(regimes, curves, parts, axes[int(grids) :], strict=True):
            for curve, part, (*_, name_a), ax in zip(row, of_row, COLUMNS, panels, strict=True):
                _draw(curve, ax, name_a, span, why_empty(runs, part))
            panels[0].set_ylabel(f"{regime_words(regime)}\naccuracy")
        draw_size_bar(figure, axes[int(grids) :].flat, sizes, "$N$")
        for ax, (title, *_) in zip(axes[0], COLUMNS, strict=True):
            ax.set_title(title)
        write_source(figure, f"{text}; {NOTE}; points: best of seeds, coloured by $N$")
    return figure


def _curve(runs: PaperRuns, part: Part | None, a: float) -> CollapseCurve | None:
    rows = runs.rows(part.label) if part else []
    return collapse_curve(rows, a, np.random.default_rng(0)) if rows else None


def _draw(curve: CollapseCurve | None, ax: Axes, name_a: str, span: tuple[float, float], why: str) -> None:
    if curve:
        draw_collapse(curve, ax, name_a=name_a, group_range=span)
    else:
        draw_missing(ax, why=why, box_aspect=None)


def layers_figure(runs: PaperRuns) -> Figure:
    """N-Lambda grid and its collapse, MQAR.   Paper: Fig. 5 (`fig:multi-layer-scaling-laws`)."""
    return _layers(runs, ("mqar",))


def all_layers_figure(runs: PaperRuns) -> Figure:
    """The same for AR and MQAR.   Paper: Fig. 10 (`app-fig:multi-layer-scaling-laws`)."""
    return _layers(runs, ("ar", "mqar"))


def _layers(runs: PaperRuns, tasks: Sequence[str]) -> Figure:
    text = source_line(runs, "layers", [LAYERS[task][0] for task in tasks])
    with figure_style():
        figure = Figure(figsize=(1.1 * PAGE, 2.5 * len(tasks) + 0.4), layout="constrained")
        axes = figure.subplots(len(tasks), 2, squeeze=False)
        curves = {task: _layer_curve(runs, task) for task in tasks}
        depths = [float(depth) for curve in curves.values() if curve for depth in curve.group]
        for task, (left, right) in zip(tasks, axes, strict=True):
            label, _, name_a = LAYERS[task]
            part = runs.parts.get(label)
            draw_part(runs, part, left, LAYER_AXES, f"{task.upper()}, linear").set_box_aspect(None)
            _draw(curves[task], right, name_a, (min(depths), max(depths)), why_empty(runs, part))
            right.set_title(r"against $1/\sigma$, $N$ counted over all $\Lambda$ layers")
        draw_bar(figure, axes[:, 0])
        draw_size_bar(figure, axes[:, 1], depths, r"$\Lambda$")
        write_source(figure, f"{text}; {NOTE}")
    return figure


def _layer_curve(runs: PaperRuns, task: str) -> CollapseCurve | None:
    label, a, _ = LAYERS[task]
    rows = runs.rows(label)
    if not rows:
        return None
    return collapse_curve(rows, a, np.random.default_rng(0), axes=LAYER_AXES, group_word="num_layers")
