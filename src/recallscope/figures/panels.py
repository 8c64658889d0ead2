"""Panels: data in, Axes out. Matrices over tokens have their classes marked, everything signed is white at 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from recallscope.figures.style import BLACK, BLUE, DARKEST, SIGNED, VERMILION

Array = NDArray[np.floating[Any]]


def draw_matrix(
    matrix: ArrayLike, ax: Axes, *, title: str, xlabel: str, ylabel: str, limit: float | None = None
) -> Axes:
    """A signed matrix with its colour bar; `limit` is the value of the strongest colour (99.9 % of entries fit)."""
    values = np.asarray(matrix, float)
    if limit is None:
        limit = float(np.quantile(np.abs(values), 0.999)) or 1.0
    image = ax.imshow(values, cmap=SIGNED, vmin=-limit, vmax=limit, aspect="equal", rasterized=True)
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    for spine in ax.spines.values():
        spine.set_visible(True)
    figure = ax.get_figure()
    assert figure is not None
    beside = ax.inset_axes((1.03, 0, 0.04 * min(1, values.shape[0] / values.shape[1]), 1))
    clipped = np.abs(values).max() > limit * 1.0001
    bar = figure.colorbar(image, cax=beside, extend="both" if clipped else "neither")
    bar.ax.tick_params(labelsize=6, length=2)
    ticks = [part * limit for part in (-1, -0.5, 0, 0.5, 1)]
    bar.set_ticks(ticks, labels=[f"{tick:.2g}" for tick in ticks])
    return ax


def mark_classes(
    ax: Axes, vocab_size: int, *, x_windows: Sequence[str] = ("",), y_windows: Sequence[str] = ("",)
) -> Axes:
    """Divide both axes into keys and values, once per token of a window; window tokens are divided by a full line."""
    half = vocab_size / 2
    for windows, line in ((x_windows, ax.axvline), (y_windows, ax.axhline)):
        for edge in range(1, 2 * len(windows)):
            between_tokens = edge % 2 == 0
            line(edge * half - 0.5, color=BLACK, lw=0.9 if between_tokens else 0.5, ls="-" if between_tokens else ":")
    ax.set_xticks([(i + 0.5) * half for i in range(2 * len(x_windows))], ["keys", "values"] * len(x_windows))
    ax.set_yticks(
        [(i + 0.5) * half for i in range(2 * len(y_windows))],
        ["keys", "values"] * len(y_windows),
        rotation=90,
        va="center",
    )
    ax.tick_params(length=0)
    points: dict[str, Any] = {"textcoords": "offset points", "annotation_clip": False}
    for i, name in enumerate(x_windows):
        below = ((2 * i + 1) * half - 0.5, 0.0)
        ax.annotate(name, below, (0, -16), xycoords=ax.get_xaxis_transform(), ha="center", va="top", **points)
    for i, name in enumerate(y_windows):
        beside = (0.0, (2 * i + 1) * half - 0.5)
        ax.annotate(name, beside, (-16, 0), xycoords=ax.get_yaxis_transform(), ha="right", va="center", **points)
    return ax


def draw_table(
    table: ArrayLike,
    ax: Axes,
    *,
    title: str,
    facts: Sequence[tuple[int, int]],
    limit: float | None = None,
    filled: bool = False,
) -> Axes:
    """A V x V table with every (value, key) that is a fact marked: ringed, or as a dot that can be seen."""
    values = np.asarray(table, float)
    draw_matrix(values, ax, title=title, xlabel="asked", ylabel="answered", limit=limit)
    mark_classes(ax, values.shape[0])
    if facts:
        rows, columns = zip(*facts, strict=True)
        inside = DARKEST if filled else "none"
        ax.scatter(columns, rows, s=6 if filled else 20, facecolors=inside, edgecolors=BLACK, linewidths=0.5)
    return ax


def draw_excerpt(table: ArrayLike, ax: Axes, *, title: str, facts: Sequence[tuple[int, int]]) -> Axes:
    """The same table at the values and keys of the facts only, in the order they were said: the diagonal are facts."""
    rows, columns = (np.array(side, int) for side in zip(*facts, strict=True))
    values = np.asarray(table, float)[np.ix_(rows, columns)]
    draw_matrix(values, ax, title=title, xlabel="asked: key $n$", ylabel="answered: value $n$", limit=1)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True))
    return ax


def draw_attention(
    alpha: ArrayLike,
    ax: Axes,
    *,
    title: str,
    context_length: int,
    limit: float | None = None,
    xlabel: str = "query t",
    ylabel: str = "source τ",
) -> Axes:
    """An L x L map over positions; dotted lines divide the facts from the queries."""
    draw_matrix(alpha, ax, title=title, xlabel=xlabel, ylabel=ylabel, limit=limit)
    for line in (ax.axvline, ax.axhline):
        line(context_length - 0.5, color=BLACK, lw=0.6, ls=":")
    L = np.asarray(alpha).shape[0]
    middles = [context_length / 2 - 0.5, (context_length + L) / 2 - 0.5]
    ax.set_xticks(middles, ["facts", "queries"])
    ax.set_yticks(middles, ["facts", "queries"], rotation=90, va="center")
    ax.tick_params(length=0)
    return ax


def draw_curve(
    x: ArrayLike, measured: ArrayLike, ax: Axes, *, predicted: ArrayLike | None, xlabel: str, ylabel: str, title: str
) -> Axes:
    """Measured points, and the line that was predicted for them."""
    if predicted is not None:
        ax.plot(x, predicted, color=BLUE, label="predicted")
    ax.plot(x, measured, "o", color=VERMILION, label="measured")
    ax.set(xlabel=xlabel, ylabel=ylabel, title=title)
    ax.legend()
    return ax
