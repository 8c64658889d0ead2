"""Panels of curves: accuracy against 1/sigma, predictions, vocabularies, repeated keys, and seeds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.collapse import Fit
from recallscope.analysis.collapse_curve import CollapseCurve
from recallscope.analysis.ladder import Rung
from recallscope.analysis.law_points import LawPoints
from recallscope.analysis.seeds import SeedBin
from recallscope.analysis.vocabulary_slopes import VocabularySlope
from recallscope.figures.accuracy_panels import LETTERS, MOST_TICKS, bar_aspect
from recallscope.figures.style import AMOUNT, BLACK, BLUE, VERMILION

SHADES = LinearSegmentedColormap.from_list("shades", colormaps[AMOUNT](np.linspace(0, 0.88, 64)))
GUESS = "#888888"
MARKERS = ("o", "s", "^", "D", "v")


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


def draw_vocabularies(slopes: Sequence[VocabularySlope], ax: Axes) -> Axes:
    """Accuracy against V, a line per length."""
    for slope, colour in zip(slopes, shades(len(slopes)), strict=True):
        ax.plot(slope.vocab_sizes, slope.accuracy, "o-", color=colour, label=f"$L={slope.length}$")
    ax.set_xscale("log")
    sizes = sorted({int(V) for slope in slopes for V in slope.vocab_sizes})
    step = -(-len(sizes) // 6)
    ax.set_xticks(sizes[::step], [str(V) for V in sizes[::step]])
    ax.set_xticks([], minor=True)
    ax.set(title="Accuracy", xlabel="vocabulary $V$", ylabel="accuracy", ylim=(-0.03, 1.03))
    ax.legend()
    return ax


def draw_slopes(slopes: Sequence[VocabularySlope], ax: Axes) -> Axes:
    """Phi^-1 of accuracy against m_V, with a line per length whose slope stands in the legend."""
    for slope, colour in zip(slopes, shades(len(slopes)), strict=True):
        error = f" ± {slope.slope_error:.2f}" if slope.slope_error == slope.slope_error else ""
        fitted = f": slope {slope.slope:.2f}{error}" if slope.slope == slope.slope else ": no line"
        ax.plot(slope.typical_max, slope.normal_inverse, "o", color=colour, label=f"$L={slope.length}${fitted}")
        ends = np.array([slope.typical_max.min(), slope.typical_max.max()])
        ax.plot(ends, slope.intercept - slope.slope * ends, color=GUESS, lw=1, zorder=0)
    ax.set(title="Its normal inverse", xlabel="$m_V$", ylabel=r"$\Phi^{-1}$(accuracy)")
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.1 * (len(slopes) + 1) * (high - low), high)  # room for the legend below the points
    ax.legend(title="the law says slope 1", title_fontsize=7, loc="lower left", labelspacing=0.3)
    return ax


def draw_repeats(grid: AccuracyGrid, ax: Axes) -> Axes:
    """Accuracy against N_k, a line per depth (first axis), with guessing among the N_k values in grey."""
    (depth_word, depths), (_, repeats) = grid.axes.items()
    N_k = np.array([float(str(value)) for value in repeats])
    ax.plot(N_k, 1 / N_k, color=GUESS, ls="--", lw=1, zorder=3, label="guess: $1/N_k$")
    letter = LETTERS[depth_word].strip("$")
    for row, (depth, colour) in enumerate(zip(depths, shades(len(depths)), strict=True)):
        kept = ~np.isnan(grid.accuracy[row])
        marker = MARKERS[row % len(MARKERS)] + "-"
        ax.plot(N_k[kept], grid.accuracy[row, kept], marker, color=colour, label=f"${letter}={depth}$")
    ax.set(title="By depth", xlabel="times a key is written, $N_k$", ylabel="accuracy", ylim=(-0.03, 1.03), xticks=N_k)
    ax.legend()
    return ax


def draw_ladder(rungs: Sequence[Rung], num_facts: int, ax: Axes) -> Axes:
    """Mean accuracy of each rung as a bar, every seed as a dot, and guessing among the facts as a line."""
    ax.bar(range(len(rungs)), [rung.mean for rung in rungs], color=BLUE, width=0.6)
    for place, rung in enumerate(rungs):
        ax.plot(place + _spread(len(rung.accuracies)), rung.accuracies, ".", color=BLACK)
    ax.axhline(1 / num_facts, color=GUESS, ls="--", lw=0.8)
    ax.text(1.01, 1 / num_facts, "$1/N_f$", color="#555555", va="center", transform=ax.get_yaxis_transform())
    ax.set_xticks(range(len(rungs)), [rung.name for rung in rungs])
    ax.set(ylabel="accuracy", ylim=(0, 1.05))
    return ax


def _spread(count: int) -> np.ndarray:
    """Places beside each other for dots that would hide one another."""
    return np.linspace(-0.2, 0.2, count) if count > 1 else np.zeros(count)


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
