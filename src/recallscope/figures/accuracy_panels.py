"""Panels of accuracy: grids with the actual values on both axes, curves against 1/sigma, laws, and seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import LinearSegmentedColormap, LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from recallscope.analysis.accuracy_grid import AccuracyGrid, SeedBin
from recallscope.analysis.collapse import CollapseCurve, Fit
from recallscope.analysis.compare import LawPoints
from recallscope.analysis.seed_noise import interval
from recallscope.figures.style import AMOUNT, BLACK, BLUE, GUESS, VERMILION

LETTERS = {
    "embed_dim": "$D$",
    "state_dim": "$N$",
    "num_layers": r"$\Lambda$",
    "num_heads": "$M$",
    "vocab_size": "$V$",
    "num_facts": "$N_f$",
    "length": "$L$",
    "key_repeats": "$N_k$",
}
MOST_WITH_NUMBERS = 12  # cells a side; beyond, numbers would be smaller than can be read
MOST_TICKS = 12
MARKERS = "o^sDvP"
EMPTY, EMPTY_LINES = "#F2F2F2", "#C4C4C4"


def draw_grid(grid: AccuracyGrid, ax: Axes, *, title: str = "", box_aspect: float | None = 1) -> Axes:
    """Accuracy by colour over two axes, the first to the right, the second upwards; written out where there is room."""
    (x_word, x_values), (y_word, y_values) = grid.axes.items()
    tiles = np.ma.masked_invalid(grid.accuracy.T)
    width, height = len(x_values), len(y_values)
    for column, row in np.transpose(grid.places)[grid.cells["test_accuracy"].isna()]:  # planned, but not there
        tile = (column - 0.5, row - 0.5), 1, 1
        ax.add_patch(Rectangle(*tile, facecolor=EMPTY, edgecolor=EMPTY_LINES, hatch="////", lw=0, zorder=0))
    ax.imshow(tiles, cmap=AMOUNT, vmin=0, vmax=1, origin="lower", aspect="auto", zorder=1)
    if width <= MOST_WITH_NUMBERS and height <= MOST_WITH_NUMBERS:
        _write_numbers(tiles, ax)
    for axis, values in ((ax.xaxis, x_values), (ax.yaxis, y_values)):
        step = -(-len(values) // MOST_TICKS)
        axis.set_ticks(range(0, len(values), step), [str(value) for value in values[::step]])
    ax.tick_params(length=0)
    ax.set(title=title, xlabel=LETTERS.get(x_word, x_word), ylabel=LETTERS.get(y_word, y_word))
    ax.set_box_aspect(box_aspect)
    for spine in ax.spines.values():
        spine.set_visible(False)
    return ax


def _write_numbers(tiles: np.ma.MaskedArray, ax: Axes) -> None:
    """Two digits in every tile that has a number; thin white lines keep the tiles apart."""
    height, width = tiles.shape
    size = 7 if max(width, height) <= 6 else 5
    for row, column in zip(*np.nonzero(~np.ma.getmaskarray(tiles)), strict=True):
        value = float(tiles[row, column])
        colour = "white" if value < 0.55 else "black"
        ax.text(column, row, short_number(value), ha="center", va="center", color=colour, fontsize=size)
    ax.set_xticks(np.arange(1, width) - 0.5, minor=True)
    ax.set_yticks(np.arange(1, height) - 0.5, minor=True)
    ax.grid(which="minor", color="white", linewidth=0.8)
    ax.tick_params(which="minor", length=0)


def short_number(value: float) -> str:
    """.98, and 1 or 0 only for what is exactly that: 0.9996 is >.99, as the last step to 1 is what grids are about."""
    if value in (0.0, 1.0):
        return f"{value:.0f}"
    if value >= 0.995:
        return ">.99"
    return "<.01" if value < 0.005 else f"{value:.2f}".lstrip("0")


def draw_missing(ax: Axes, *, title: str = "", why: str = "no runs yet", box_aspect: float | None = 1) -> Axes:
    """A panel that says why it is empty."""
    ax.text(0.5, 0.5, why, ha="center", va="center", color="#666666", transform=ax.transAxes)
    ax.set(title=title, xticks=[], yticks=[])
    ax.set_box_aspect(box_aspect)
    for spine in ax.spines.values():
        spine.set(visible=True, color=EMPTY_LINES, linestyle=":")
    return ax


def draw_bar(figure: Figure, axes: Iterable[Axes], *, label: str = "accuracy") -> None:
    """One colour bar for several panels."""
    colours = ScalarMappable(Normalize(0, 1), colormaps[AMOUNT])
    _bar(figure, axes, colours, label)


def _bar(figure: Figure, axes: Iterable[Axes], colours: ScalarMappable, label: str) -> Colorbar:
    """A colour bar an eighth of an inch wide, whatever the figure's height."""
    aspect = 8 * float(figure.get_figheight())
    bar = figure.colorbar(colours, ax=list(axes), label=label, fraction=0.03, pad=0.02, aspect=aspect)
    bar.outline.set_visible(False)
    return bar


SHADES = LinearSegmentedColormap.from_list("shades", colormaps[AMOUNT](np.linspace(0, 0.88, 64)))


def shades(count: int) -> list[tuple[float, float, float, float]]:
    """As many colours from dark to light, the palest end left out: it vanishes on paper."""
    return [SHADES(value) for value in np.linspace(0, 1, max(count, 1))]


def draw_collapse(curve: CollapseCurve, ax: Axes, *, name_a: str, sizes: Iterable[float]) -> Axes:
    """Cells as points told apart by a size, one of `sizes`, with 95% intervals where seeds give them.

    The printed curve is dashed, the fitted one has its 95% band.
    """
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
    if curve.half is not None:
        ax.errorbar(curve.x, curve.accuracy, curve.half, fmt="none", ecolor=GUESS, elinewidth=0.7, zorder=2.5)
    for size, (colour, marker) in _size_looks(sizes).items():
        here = curve.group == size
        ax.scatter(
            curve.x[here], curve.accuracy[here], color=colour, marker=marker,
            s=16, edgecolors="white", linewidths=0.3, zorder=3,
        )  # fmt: skip
    ax.set(xlabel=rf"$x=1/\sigma$ with $a={name_a}$", ylabel="accuracy", xlim=(0, curve.line[-1]))
    ax.set_ylim(-0.03, 1.03)
    return ax


def _size_looks(sizes: Iterable[float]) -> dict[float, tuple[Any, str]]:
    """A colour for every size, and a marker where there are few."""
    values = sorted(set(sizes))
    norm = _size_norm(values[0], values[-1])
    few = len(values) <= len(MARKERS)
    return {size: (SHADES(norm(size)), MARKERS[place] if few else "o") for place, size in enumerate(values)}


def draw_size_key(figure: Figure, axes: Iterable[Axes], sizes: Iterable[float], label: str) -> None:
    """What the colours and markers of the points mean: a legend, or a bar where there are many sizes."""
    looks = _size_looks(sizes)
    values = list(looks)
    if len(values) <= len(MARKERS):
        handles = [
            Line2D([], [], ls="", marker=marker, color=colour, label=f"{label} = {size:g}")
            for size, (colour, marker) in looks.items()
        ]
        [*axes][-1].legend(handles=handles, loc="center left", bbox_to_anchor=(1, 0.5))
        return
    bar = _bar(figure, axes, ScalarMappable(_size_norm(values[0], values[-1]), SHADES), label)
    ticks = values[:: -(-len(values) // MOST_TICKS)]
    bar.set_ticks(ticks, labels=[f"{value:g}" for value in ticks])
    bar.ax.set_yticks([], minor=True)


def _size_norm(low: float, high: float) -> LogNorm:
    return LogNorm(low, max(high, 1.01 * low))


def _with_interval(letter: str, fit: Fit, between: str = "\n") -> str:
    value, ends = getattr(fit, letter), getattr(fit, f"{letter}_interval")
    return f"${letter}={value:.2f}${between}{interval(*ends)}" if ends[0] == ends[0] else f"${letter}={value:.2f}$"


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
    ax.set(title=title, ylabel="measured accuracy", xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    ticks = (0, 0.25, 0.5, 0.75, 1)
    ax.set(xticks=ticks, yticks=ticks)
    ax.set_box_aspect(1)
    return ax


def draw_residuals(
    predicted: Mapping[str, NDArray[np.float64]],
    off: Mapping[str, NDArray[np.float64]],
    ax: Axes,
    *,
    looks: Mapping[str, tuple[str, str]],
    errors: Mapping[str, NDArray[np.float64]] | None = None,
) -> Axes:
    """Measured minus predicted against predicted accuracy, by (colour, marker); at 0 they agree."""
    ax.axhline(0, color=GUESS, lw=0.8, zorder=0)
    for label, x in predicted.items():
        colour, marker = looks[label]
        style: dict[str, Any] = {"fmt": marker, "color": colour, "ms": 4, "lw": 0.7, "mew": 0.8, "label": label}
        face = "none" if colour == GUESS else colour
        ax.errorbar(x, off[label], (errors or {}).get(label), markerfacecolor=face, alpha=0.85, **style)
    largest = max(0.01, *(float(np.nanmax(np.abs(values))) for values in off.values()))
    ax.set(xlabel="predicted accuracy", ylabel="measured minus predicted", xlim=(-0.03, 1.03))
    ax.set_ylim(-1.15 * largest, 1.15 * largest)
    return ax


def draw_convergence(bins: Sequence[SeedBin], ax: Axes) -> Axes:
    """Fraction of seeds that converge, by the best accuracy of their cell; the number of seeds is above each bar."""
    kept = [part for part in bins if part.seeds]
    for part in kept:
        middle, width = (part.low + part.high) / 2, part.high - part.low
        ax.bar(middle, part.rate, width=0.85 * width, color=BLUE)
        ax.text(middle, part.rate + 0.02, str(part.seeds), ha="center", va="bottom", fontsize=6)
    ax.set(title="by best accuracy", xlabel="best accuracy of the setting", ylabel="fraction of seeds that converge")
    ax.set(xlim=(0, 1), ylim=(0, 1.1))
    return ax
