"""Panels of accuracy grids: tiles with the actual values on both axes, missing ones hatched."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.figures.style import AMOUNT

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
EMPTY, EMPTY_LINES = "#F2F2F2", "#C4C4C4"


def draw_grid(grid: AccuracyGrid, ax: Axes, *, title: str = "", box_aspect: float | None = 1) -> Axes:
    """Accuracy by colour over two axes, the first to the right, the second upwards; written out where there is room."""
    (x_word, x_values), (y_word, y_values) = grid.axes.items()
    tiles = np.ma.masked_invalid(grid.accuracy.T)
    width, height = len(x_values), len(y_values)
    frame = (-0.5, -0.5)
    ax.add_patch(Rectangle(frame, width, height, facecolor=EMPTY, edgecolor=EMPTY_LINES, hatch="////", lw=0, zorder=0))
    for column, row in zip(*np.nonzero(_impossible(grid)), strict=True):
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="white", lw=0, zorder=0.5))
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


def _impossible(grid: AccuracyGrid) -> NDArray[np.bool_]:
    """Cells of a D-N grid with N > D, which are not missing: no circuit is there (App. E.1), no run is asked for."""
    if tuple(grid.axes) != ("embed_dim", "state_dim"):
        return np.zeros(grid.accuracy.shape, bool)
    D, N = (np.array(values, float) for values in grid.axes.values())
    return np.isnan(grid.accuracy) & (N > D[:, None])


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
    """.98, and 1 or 0 only for what is exactly that: .9996 is >.99, as the last step to 1 is what grids are about."""
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
    bar = figure.colorbar(colours, ax=list(axes), label=label, fraction=0.03, pad=0.02, aspect=bar_aspect(figure))
    bar.outline.set_visible(False)


def bar_aspect(figure: Figure) -> float:
    """Length over width of a colour bar: an eighth of an inch wide, whatever the figure's height."""
    return 8 * float(figure.get_figheight())
