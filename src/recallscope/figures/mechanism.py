"""The figures of the mechanism: tables, attention, copy and shift, operators, and how the table fills.

Paper: Fig. 3 (`fig:reversing-hidden`), Fig. 13-16 (`app-fig:reversing-hidden`, `fig:reversing-attn`,
`fig:reversing-conv`, `app-fig:reversing-operators`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from recallscope.figures.style import BLACK, BLUE, COLUMN, DARKEST, PAGE, SIGNED, VERMILION, figure_style, new_figure

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


# what the line under each figure explains
RINGS = "rings: facts of the context"
DOTTED = "dotted: where the queries begin"
DIAGONALS = "predicted: the main diagonal, and the one right of it"
FRAMED = "framed: the block the circuit predicts"


def inside_figures(
    arrays: Mapping[str, NDArray[Any]], task: Mapping[str, Any], fill: Mapping[str, Any], label: str
) -> dict[str, Figure]:
    """All figures of one linear model, from the arrays that were kept of it (`interp.picture_arrays`).

    `task` has the fields of its task, by name.
    """
    context, delay = 2 * task["num_facts"] * task["key_repeats"], int(arrays["delay"])
    shown = len(arrays["shown"])
    some = label if shown == task["vocab_size"] else f"{label}, {shown} of the tokens"
    return {
        "hash_table": hash_table_figure(
            arrays["ideal_table"],
            arrays["hashed_table"],
            arrays["decoded_table"],
            facts=[(int(value), int(key)) for value, key in arrays["facts"]],
            label=some,
        ),
        "attention": attention_figure(
            arrays["ideal_attention"], arrays["attention"], context_length=context, label=label
        ),
        "copy_and_shift": copy_shift_figure(arrays["copied"], arrays["shifted"], context_length=context, label=label),
        "operators": operators_figure(arrays["value_operator"], arrays["match_operator"], delay=delay, label=some),
        "fill": fill_figure(
            fill["num_facts"], fill["hit_rate"], fill["predicted"], num_facts=task["num_facts"], label=label
        ),
    }


def hash_table_figure(
    ideal: ArrayLike, hashed: ArrayLike, decoded: ArrayLike, *, facts: Sequence[tuple[int, int]], label: str = ""
) -> Figure:
    """H, H' and H'' of one sequence, and H'' at the tokens of its facts; `decoded` in units of one fact.

    Paper: Fig. 3 (`fig:reversing-hidden`), Fig. 13 (`app-fig:reversing-hidden`).
    """
    with figure_style():
        figure = new_figure(1.6 * PAGE, 3.1)
        draw_tables(figure, ideal, hashed, decoded, facts)
        _label(figure, label, RINGS)
    return figure


def draw_tables(
    figure: FigureBase, ideal: ArrayLike, hashed: ArrayLike, decoded: ArrayLike, facts: Sequence[tuple[int, int]]
) -> None:
    """The four panels of one model."""
    said, stored, meant, close_up = figure.subplots(1, 4, width_ratios=[1, 0.62, 1, 1])
    draw_table(ideal, said, title="$H_t$: what was said", facts=facts, limit=1, filled=True)
    draw_matrix(hashed, stored, title="$H'_t$: what is stored", xlabel="$N$", ylabel="$D$")
    draw_table(decoded, meant, title="$H''_t$: what it means", facts=facts, limit=1)
    draw_excerpt(decoded, close_up, title="$H''_t$ at the facts", facts=facts)


def attention_figure(
    ideal: ArrayLike,
    actual: ArrayLike,
    *,
    context_length: int,
    symbol: str = r"\alpha'_{\tau t}",
    label: str = "",
) -> Figure:
    """α and α' of one sequence; `actual` in units of one match.   Paper: Fig. 14 (`fig:reversing-attn`)."""
    with figure_style():
        figure = new_figure(PAGE, 3.5)
        draw_attention_pair(figure, ideal, actual, context_length=context_length, symbol=symbol)
        _label(figure, label, DOTTED)
    return figure


def draw_attention_pair(
    figure: FigureBase,
    ideal: ArrayLike,
    actual: ArrayLike,
    *,
    context_length: int,
    symbol: str = r"\alpha'_{\tau t}",
) -> None:
    """Both panels of one model."""
    left, right = figure.subplots(1, 2)
    draw_attention(ideal, left, title=r"$\alpha_{\tau t}$: the ideal circuit", context_length=context_length, limit=1)
    draw_attention(actual, right, title=f"${symbol}$: this model", context_length=context_length, limit=1)


def copy_shift_figure(copied: ArrayLike, shifted: ArrayLike, *, context_length: int, label: str = "") -> Figure:
    """x_tᵀ G_vv ξ_τ and ξ_tᵀ G_kqᵀ ξ_τ of one sequence, diagonals near 1.   Paper: Fig. 15 (`fig:reversing-conv`)."""
    with figure_style():
        figure = new_figure(PAGE, 3.5)
        draw_copy_and_shift(figure, copied, shifted, context_length=context_length)
        _label(figure, label, DIAGONALS)
    return figure


def draw_copy_and_shift(figure: FigureBase, copied: ArrayLike, shifted: ArrayLike, *, context_length: int) -> None:
    """Both panels of one model."""
    titles = (
        r"$x_t^\top G_{vv}\,\xi_\tau$: values are copied",
        r"$\xi_t^\top G_{kq}^\top\,\xi_\tau$: keys are shifted",
    )
    for ax, matrix, title in zip(figure.subplots(1, 2), (copied, shifted), titles, strict=True):
        draw_attention(matrix, ax, title=title, context_length=context_length, limit=1, xlabel="τ", ylabel="t")


def operators_figure(
    value_operator: ArrayLike, match_operator: ArrayLike, *, delay: int = 0, label: str = ""
) -> Figure:
    """G_vv and G_kq, each scaled to mean diagonal 1 in its predicted block, which is framed.

    Paper: Fig. 16 (`app-fig:reversing-operators`).
    """
    with figure_style():
        figure = new_figure(PAGE * 1.25, 4.1)
        draw_operators(figure, value_operator, match_operator, delay=delay)
        _label(figure, label, FRAMED)
    return figure


def draw_operators(figure: FigureBase, value_operator: ArrayLike, match_operator: ArrayLike, *, delay: int = 0) -> None:
    """Both panels of one model."""
    G_vv, G_kq = np.asarray(value_operator), np.asarray(match_operator)
    V = G_vv.shape[0]
    W = G_vv.shape[1] // V
    left, right = figure.subplots(1, 2)
    stored, asking = _window_names(r"\tau", W), _window_names("t", W)
    draw_matrix(G_vv, left, title="$G_{vv}$", xlabel="", ylabel="", limit=1)
    mark_classes(left, V, x_windows=stored, y_windows=["$y_t$"])
    draw_matrix(G_kq, right, title="$G_{kq}$", xlabel="", ylabel="", limit=1)
    mark_classes(right, V, x_windows=asking, y_windows=stored)
    if W > 1:
        for ax, column, row in ((left, W - 1 - delay, 0), (right, W - 1, W - 2 - delay)):
            corner = (column * V - 0.5, row * V - 0.5)
            ax.add_patch(Rectangle(corner, V, V, fill=False, edgecolor=BLACK, linewidth=1.6))


def fill_figure(
    facts_written: Sequence[int],
    hit_rate: Sequence[float],
    predicted: Sequence[float],
    *,
    num_facts: int,
    label: str = "",
) -> Figure:
    """Facts decoded rightly against facts written, beside the law.   Paper: Thm 4.2 (`thm:prob-scaling-law`)."""
    with figure_style():
        figure = new_figure(COLUMN * 1.1, 2.6)
        ax = figure.subplots()
        draw_curve(
            facts_written,
            hit_rate,
            ax,
            predicted=predicted,
            xlabel="facts written",
            ylabel="facts decoded rightly",
            title="How full is the table?",
        )
        ax.axvline(num_facts, color=BLACK, lw=0.6, ls=":")
        ax.set_ylim(min(0.98, *hit_rate, *predicted) - 0.02, 1.005)
        _label(figure, label, "dotted: the task's $N_f$")
    return figure


def _window_names(letter: str, W: int) -> list[str]:
    return [f"$x_{{{letter}{-lag if lag else ''}}}$" for lag in range(W - 1, -1, -1)]


def _label(figure: Figure, label: str, note: str) -> None:
    figure.supxlabel("    ".join(part for part in (label, note) if part), fontsize=7)
