"""The figures of the mechanism: tables, attention, copy and shift, operators, how the table fills, and channel banks.

Paper: Fig. 3 (`fig:reversing-hidden`), Fig. 13-16 (`app-fig:reversing-hidden`, `fig:reversing-attn`,
`fig:reversing-conv`, `app-fig:reversing-operators`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from recallscope.figures.style import (
    AMOUNT,
    BLACK,
    BLUE,
    COLUMN,
    DARKEST,
    PAGE,
    SIGNED,
    VERMILION,
    figure_style,
    new_figure,
)

Draw = Callable[..., None]  # panels into a figure


def draw_matrix(
    matrix: ArrayLike, ax: Axes, *, title: str, xlabel: str, ylabel: str, limit: float | None = None
) -> Axes:
    """A signed matrix with its colour bar; `limit` is the value of the strongest colour (99.9% of entries fit)."""
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
    table: ArrayLike, ax: Axes, *, title: str, facts: Sequence[tuple[int, int]], filled: bool = False
) -> Axes:
    """A V x V table with every (value, key) that is a fact marked: ringed, or as a dot that can be seen."""
    values = np.asarray(table, float)
    draw_matrix(values, ax, title=title, xlabel="key", ylabel="value", limit=1)
    mark_classes(ax, values.shape[0])
    if facts:
        rows, columns = zip(*facts, strict=True)
        inside = DARKEST if filled else "none"
        ax.scatter(columns, rows, s=6 if filled else 20, facecolors=inside, edgecolors=BLACK, linewidths=0.5)
    return ax


def draw_excerpt(table: ArrayLike, ax: Axes, *, title: str, facts: Sequence[tuple[int, int]]) -> Axes:
    """The same table at the values and keys of the facts only, in order of appearance: the diagonal are facts."""
    rows, columns = (np.array(side, int) for side in zip(*facts, strict=True))
    values = np.asarray(table, float)[np.ix_(rows, columns)]
    draw_matrix(values, ax, title=title, xlabel="key of fact $n$", ylabel="value of fact $n$", limit=1)
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(MaxNLocator(6, integer=True))
    return ax


def draw_attention(
    alpha: ArrayLike, ax: Axes, *, title: str, context_length: int, xlabel: str = "query t", ylabel: str = "source τ"
) -> Axes:
    """An L x L map over positions; dotted lines divide the facts from the queries."""
    draw_matrix(alpha, ax, title=title, xlabel=xlabel, ylabel=ylabel, limit=1)
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


# Panels of one model


def draw_tables(
    figure: FigureBase, ideal: ArrayLike, hashed: ArrayLike, decoded: ArrayLike, facts: Sequence[tuple[int, int]]
) -> None:
    """H, H' and H'' of one sequence, and H'' at the tokens of its facts; `decoded` in units of one fact.

    Paper: Fig. 3 (`fig:reversing-hidden`), Fig. 13 (`app-fig:reversing-hidden`).
    """
    context, stored, read, close_up = figure.subplots(1, 4, width_ratios=[1, 0.62, 1, 1])
    draw_table(ideal, context, title="$H_t$: facts in the context", facts=facts, filled=True)
    draw_matrix(hashed, stored, title="$H'_t$: the state", xlabel="$N$", ylabel="$D$")
    draw_table(decoded, read, title="$H''_t$: decoded from the state", facts=facts)
    draw_excerpt(decoded, close_up, title="$H''_t$ at the facts", facts=facts)


def draw_attention_pair(
    figure: FigureBase, ideal: ArrayLike, actual: ArrayLike, *, context_length: int, symbol: str = r"\alpha'_{\tau t}"
) -> None:
    """α and α' of one sequence; `actual` in units of one match.   Paper: Fig. 14 (`fig:reversing-attn`)."""
    left, right = figure.subplots(1, 2)
    draw_attention(ideal, left, title=r"$\alpha_{\tau t}$: the ideal circuit", context_length=context_length)
    draw_attention(actual, right, title=f"${symbol}$: this model", context_length=context_length)


def draw_copy_and_shift(figure: FigureBase, copied: ArrayLike, shifted: ArrayLike, *, context_length: int) -> None:
    """x_tᵀ G_vv ξ_τ and ξ_tᵀ G_kqᵀ ξ_τ of one sequence, diagonals near 1.   Paper: Fig. 15 (`fig:reversing-conv`)."""
    titles = (
        r"$x_t^\top G_{vv}\,\xi_\tau$: values are copied",
        r"$\xi_t^\top G_{kq}^\top\,\xi_\tau$: keys are shifted",
    )
    for ax, matrix, title in zip(figure.subplots(1, 2), (copied, shifted), titles, strict=True):
        draw_attention(matrix, ax, title=title, context_length=context_length, xlabel="τ", ylabel="t")


def draw_operators(figure: FigureBase, value_operator: ArrayLike, match_operator: ArrayLike, *, delay: int = 0) -> None:
    """G_vv and G_kq, each scaled to mean diagonal 1 in its predicted block, which is framed.

    Paper: Fig. 16 (`app-fig:reversing-operators`).
    """
    V, width = np.asarray(value_operator).shape
    W = width // V
    stored, asking = ([f"$x_{{{letter}{-lag or ''}}}$" for lag in range(W - 1, -1, -1)] for letter in (r"\tau", "t"))
    for ax, title, matrix, x_windows, y_windows, column, row in zip(
        figure.subplots(1, 2), ("$G_{vv}$", "$G_{kq}$"), (value_operator, match_operator),
        (stored, asking), (["$y_t$"], stored), (W - 1 - delay, W - 1), (0, W - 2 - delay), strict=True,
    ):  # fmt: skip
        draw_matrix(matrix, ax, title=title, xlabel="", ylabel="", limit=1)
        mark_classes(ax, V, x_windows=x_windows, y_windows=y_windows)
        if W > 1:
            corner = (column * V - 0.5, row * V - 0.5)
            ax.add_patch(Rectangle(corner, V, V, fill=False, edgecolor=BLACK, linewidth=1.6))
            square = np.asarray(matrix, float) ** 2
            if whole := square.sum():
                share = square[row * V : (row + 1) * V, column * V : (column + 1) * V].sum() / whole
                ax.set_title(f"{title}: {share:.2%} of the energy is in the frame")


def draw_fill(
    figure: FigureBase,
    facts_written: Sequence[int],
    hit_rate: Sequence[float],
    predicted: Sequence[float],
    *,
    num_facts: int,
) -> None:
    """Facts decoded correctly against facts written, beside the law.   Paper: Thm 4.2 (`thm:prob-scaling-law`)."""
    ax, texts = figure.subplots(), {"xlabel": "facts written", "ylabel": "facts decoded correctly"}
    draw_curve(facts_written, hit_rate, ax, predicted=predicted, **texts, title="How full is the table?")
    ax.axvline(num_facts, color=BLACK, lw=0.6, ls=":")
    ax.set_ylim(min(0.98, *hit_rate, *predicted) - 0.02, 1.005)


def inside_panels(arrays: Mapping[str, NDArray[Any]], context_length: int) -> dict[str, Draw]:
    """Panels of one linear model by name, from the arrays that were kept of it (`interp.picture_arrays`)."""
    ideal, hashed, decoded = (arrays[f"{name}_table"] for name in ("ideal", "hashed", "decoded"))
    facts = [(int(value), int(key)) for value, key in arrays["facts"]]
    attention, conv = (arrays["ideal_attention"], arrays["attention"]), (arrays["copied"], arrays["shifted"])
    operators, delay = (arrays["value_operator"], arrays["match_operator"]), int(arrays["delay"])
    return {
        "hash_table": lambda figure: draw_tables(figure, ideal, hashed, decoded, facts),
        "attention": lambda figure: draw_attention_pair(figure, *attention, context_length=context_length),
        "copy_and_shift": lambda figure: draw_copy_and_shift(figure, *conv, context_length=context_length),
        "operators": lambda figure: draw_operators(figure, *operators, delay=delay),
    }


# The same as figures: width and height in inches, and what the line under the figure explains

SHEETS = {
    "hash_table": (1.6 * PAGE, 3.1, "one sequence; rings: its facts, the diagonal of the last panel"),
    "attention": (PAGE, 3.5, "one sequence; dotted: first query"),
    "copy_and_shift": (PAGE, 3.5, "one sequence; predicted: the main diagonal, left, and the one beside it, right"),
    "operators": (1.25 * PAGE, 4.1, "framed: the block the circuit predicts"),
    "fill": (1.1 * COLUMN, 2.6, "dotted: the task's $N_f$"),
}


def _figure_of(name: str, draw: Draw) -> Callable[..., Figure]:
    """A function that takes what `draw` does but the figure, and a label for the line under it."""
    width, height, note = SHEETS[name]

    def make(*data: Any, label: str = "", **options: Any) -> Figure:
        with figure_style():
            figure = new_figure(width, height)
            draw(figure, *data, **options)
            figure.supxlabel("    ".join(part for part in (label, note) if part), fontsize=7)
        return figure

    return make


hash_table_figure = _figure_of("hash_table", draw_tables)
attention_figure = _figure_of("attention", draw_attention_pair)
copy_shift_figure = _figure_of("copy_and_shift", draw_copy_and_shift)
operators_figure = _figure_of("operators", draw_operators)
fill_figure = _figure_of("fill", draw_fill)


def inside_figures(
    arrays: Mapping[str, NDArray[Any]], task: Mapping[str, Any], fill: Mapping[str, Any], label: str
) -> dict[str, Figure]:
    """All figures of one linear model; `task` has the fields of its task, by name."""
    shown = len(arrays["shown"])
    some = label if shown == task["vocab_size"] else f"{label}, {shown} of the tokens"
    by_token = ("hash_table", "operators")
    panels = inside_panels(arrays, 2 * task["num_facts"] * task["key_repeats"])
    figures = {name: _figure_of(name, draw)(label=some if name in by_token else label) for name, draw in panels.items()}
    curves = (fill[name] for name in ("num_facts", "hit_rate", "predicted"))
    return figures | {"fill": fill_figure(*curves, num_facts=task["num_facts"], label=label)}


ABLATED = {  # names of `interp.recall_ablated`, as labels
    "as_is": "unchanged",
    "mean_gate": "gate averaged over keys",
    "no_interaction": "Δ without key-value interaction",
    "only_facts": "only facts written",
    "mean_delta_of_facts": "Δ averaged over facts",
    "equal_delta": "Δ averaged over all pairs",
    "no_decay": "no decay",
}


def draw_mask(mask: ArrayLike, ax: Axes, *, title: str) -> Axes:
    """A factor per key and channel, 1 being the largest."""
    values = np.asarray(mask, float)
    signed = bool(values.min() < -0.05)
    look: dict[str, Any] = {"cmap": SIGNED, "vmin": -1} if signed else {"cmap": AMOUNT, "vmin": 0}
    image = ax.imshow(values, vmax=1, aspect="auto", interpolation="nearest", **look)
    bar = ax.figure.colorbar(image, ax=ax, label="relative to the largest", fraction=0.05, pad=0.02)
    bar.outline.set_visible(False)
    ax.set(title=title, xlabel="channels, sorted by the gate", ylabel="keys, sorted by the gate")
    return ax


def draw_coordinates(read: ArrayLike, write: ArrayLike, ax: Axes) -> Axes:
    """Every key on the first direction of either mask: two clouds in opposite corners are two banks."""
    for line in (ax.axhline, ax.axvline):
        line(0, color=BLACK, lw=0.5, ls=":")
    x, y = np.asarray(read, float), np.asarray(write, float)
    ax.scatter(x, y, s=10, color=BLUE, alpha=0.5, linewidths=0)
    for side in (x < 0, x >= 0):
        if side.any():
            where = (float(x[side].mean()), float(y[side].mean()))
            ax.annotate(f"{side.sum()} keys", where, textcoords="offset points", xytext=(0, 8), ha="center", fontsize=7)
    ax.margins(0.3)
    ax.set(title="(c) each key's bank", xlabel="gate, first component", ylabel="writes, first component")
    return ax


def draw_ablations(recall: Mapping[str, float], ax: Axes, queries: int | None = None) -> Axes:
    """Accuracy after ablating parts of the masks, with 95% binomial intervals; dotted: unchanged."""
    values = np.array(list(recall.values()))
    half = 1.96 * np.sqrt(values * (1 - values) / queries) if queries else None
    colours = [BLUE if i == 0 else VERMILION for i in range(len(values))]
    ax.barh([ABLATED.get(name, name) for name in recall], values, xerr=half, color=colours, height=0.65,
            error_kw={"lw": 0.8})  # fmt: skip
    ax.axvline(values[0], color=BLACK, lw=0.6, ls=":")
    ax.invert_yaxis()
    ax.set(title="(d) accuracy after ablation", xlabel="accuracy", xlim=(0, 1))
    return ax


def banks_figure(
    masks: Mapping[str, NDArray[Any]], recall: Mapping[str, float], label: str = "", queries: int | None = None
) -> Figure:
    """All four, from the arrays of `interp.picture_masks` and recall with parts ablated, over so many queries."""
    with figure_style():
        figure = new_figure(PAGE, 5.0)
        (read, write), (keys, cut) = figure.subplots(2, 2)
        draw_mask(masks["read"], read, title="(a) gate: channels read for each key")
        draw_mask(masks["write"], write, title="(b) Δ: channels written for each key")
        draw_coordinates(masks["read_coordinate"], masks["write_coordinate"], keys)
        draw_ablations(recall, cut, queries)
        figure.supxlabel(label, fontsize=7, color="#555555")
    return figure
