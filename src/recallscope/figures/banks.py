"""The figure of the masks of a gated model: which channels keys are written to, and which queries read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from recallscope.figures.style import BLACK, BLUE, PAGE, SIGNED, VERMILION, figure_style, new_figure


def draw_mask(mask: ArrayLike, ax: Axes, *, title: str) -> Axes:
    """A factor per key and channel, 1 being the largest."""
    ax.imshow(np.asarray(mask, float), cmap=SIGNED, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    ax.set(title=title, xlabel="channel", ylabel="key")
    return ax


def draw_coordinates(read: ArrayLike, write: ArrayLike, ax: Axes) -> Axes:
    """Every key on the first direction of either mask: two clouds in opposite corners are a bank bit."""
    for line in (ax.axhline, ax.axvline):
        line(0, color=BLACK, lw=0.5, ls=":")
    ax.scatter(read, write, s=8, color=BLUE, alpha=0.6, linewidths=0)
    ax.set(title="keys", xlabel="on the gate's direction", ylabel="on the writes' direction")
    return ax


def draw_surgery(recall: Mapping[str, float], ax: Axes) -> Axes:
    """Recall with parts of the masks taken away; dotted: as it is."""
    names = [name.replace("_", " ") for name in recall]
    colours = [BLUE if i == 0 else VERMILION for i in range(len(names))]
    ax.barh(names, list(recall.values()), color=colours, height=0.65)
    ax.axvline(next(iter(recall.values())), color=BLACK, lw=0.6, ls=":")
    ax.invert_yaxis()
    ax.set(title="recall with masks changed", xlim=(0, 1))
    return ax


def banks_figure(masks: Mapping[str, NDArray[Any]], recall: Mapping[str, float], label: str = "") -> Figure:
    """All four, from the arrays of `interp.picture_masks` and the scores of its surgery."""
    with figure_style():
        figure = new_figure(1.5 * PAGE, 2.8)
        read, write, keys, cut = figure.subplots(1, 4, width_ratios=[1, 1, 1.1, 1])
        draw_mask(masks["read"], read, title="gate: what a query reads")
        draw_mask(masks["write"], write, title="size of a key's writes")
        draw_coordinates(masks["read_coordinate"], masks["write_coordinate"], keys)
        draw_surgery(recall, cut)
        figure.supxlabel("    ".join(filter(None, (label, "in the order of the gate's first direction"))), fontsize=7)
    return figure
