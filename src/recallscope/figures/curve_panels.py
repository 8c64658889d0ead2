"""Panels of curves: accuracy against 1/sigma, measured against predicted, and seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from recallscope.analysis.collapse import Fit
from recallscope.analysis.collapse_curve import CollapseCurve
from recallscope.analysis.law_points import LawPoints
from recallscope.analysis.seeds import SeedBin
from recallscope.figures.accuracy_panels import MOST_TICKS, bar_aspect
from recallscope.figures.style import AMOUNT, BLACK, BLUE, GUESS, VERMILION

SHADES = LinearSegmentedColormap.from_list("shades", colormaps[AMOUNT](np.linspace(0, 0.88, 64)))


def shades(count: int) -> list[tuple[float, float, float, float]]:
    """As many colours from dark to light, the palest end left out: it vanishes on paper."""
    return [SHADES(value) for value in np.linspace(0, 1, max(count, 1))]


def draw_collapse(
    curve: CollapseCurve, ax: Axes, *, title: str = "", name_a: str = "", group_range: tuple[float, float] | None = None
) -> Axes:
    """Cells as points coloured by a size, the printed curve dashed, the fitted one with its 95 % band."""
    low, high = group_range or (float(curve.group.min()), float(curve.group.max()))
    if curve.band is not None:
        ax.fill_between(curve.line, *curve.band, color=VERMILION, alpha=0.25, lw=0)
    ax.plot(curve.line, curve.printed, color=BLACK, ls="--", lw=1, label="printed")
    corner: dict[str, Any] = {"transform": ax.transAxes, "fontsize": 6}
    ax.text(0.03, 0.98, f"printed $b={curve.printed_level:.2f}$", va="top", **corner)
    if curve.fitted is not None and curve.level is not None:
        ax.plot(curve.line, curve.fitted, color=VERMILION, label="fitted")
        ax.text(0.03, 0.91, f"fitted {_with_interval('b', curve.level)}", va="top", color=VERMILION, **corner)
    if curve.free is not None:
        free = "\n".join(("both free:", *(_with_interval(letter, curve.free, " ") for letter in "ab")))
        ax.text(0.98, 0.04, free, ha="right", va="bottom", color="#555555", **corner)
    ax.scatter(
        curve.x, curve.accuracy, c=curve.group, cmap=SHADES, norm=_size_norm(low, high),
        s=16, edgecolors="white", linewidths=0.3, zorder=3,
    )  # fmt: skip
    a = name_a or f"{curve.a:g}"
    ax.set(title=title, xlabel=rf"$x=1/\sigma$ with $a={a}$", ylabel="accuracy", xlim=(0, curve.line[-1]))
    ax.set_ylim(-0.03, 1.03)
    return ax


def draw_size_bar(figure: Figure, axes: Iterable[Axes], sizes: Iterable[float], label: str) -> None:
    """The colours of the points: one bar, with the sizes there are."""
    values = sorted(set(sizes))
    scale = ScalarMappable(_size_norm(values[0], values[-1]), SHADES)
    bar = figure.colorbar(scale, ax=list(axes), label=label, fraction=0.03, pad=0.02, aspect=bar_aspect(figure))
    ticks = values[:: -(-len(values) // MOST_TICKS)]
    bar.set_ticks(ticks, labels=[f"{value:g}" for value in ticks])
    bar.ax.set_yticks([], minor=True)
    bar.outline.set_visible(False)


def _size_norm(low: float, high: float) -> LogNorm:
    return LogNorm(low, max(high, 1.01 * low))


def _with_interval(letter: str, fit: Fit, between: str = "\n") -> str:
    value, (low, high) = getattr(fit, letter), getattr(fit, f"{letter}_interval")
    return f"${letter}={value:.2f}${between}[{low:.2f}, {high:.2f}]" if low == low else f"${letter}={value:.2f}$"


def draw_law_points(
    points: LawPoints, ax: Axes, *, title: str, colours: dict[str, str], markers: dict[str, str]
) -> Axes:
    """Measured against predicted, a dot per cell; on the line they agree."""
    ax.plot([0, 1], [0, 1], color=GUESS, lw=0.8, zorder=0)
    for label, predicted in points.predicted.items():
        ax.scatter(
            predicted, points.measured[label], s=12, color=colours[label], marker=markers[label],
            linewidths=0, alpha=0.8, label=label,
        )  # fmt: skip
    ax.set(title=title, xlabel="predicted accuracy", ylabel="measured accuracy", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    ticks = (0, 0.25, 0.5, 0.75, 1)
    ax.set(xticks=ticks, yticks=ticks)
    ax.set_box_aspect(1)
    return ax


def draw_convergence(bins: Sequence[SeedBin], ax: Axes) -> Axes:
    """Share of seeds that converge, by the best accuracy of their cell; the number of seeds stands above each bar."""
    kept = [part for part in bins if part.seeds]
    for part in kept:
        middle, width = (part.low + part.high) / 2, part.high - part.low
        ax.bar(middle, part.rate, width=0.85 * width, color=BLUE)
        ax.text(middle, part.rate + 0.02, str(part.seeds), ha="center", va="bottom", fontsize=6)
    ax.set(
        title="By what the cell can reach", xlabel="best accuracy of the cell", ylabel="share of seeds that converge"
    )
    ax.set(xlim=(0, 1), ylim=(0, 1.1))
    return ax
