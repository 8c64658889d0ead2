"""The figures of the mechanism: tables, attention, copy and shift, operators, and how the table fills.

Paper: Fig. 3 (`fig:reversing-hidden`), Fig. 13-16 (`app-fig:reversing-hidden`, `fig:reversing-attn`,
`fig:reversing-conv`, `app-fig:reversing-operators`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure, FigureBase
from matplotlib.patches import Rectangle
from numpy.typing import ArrayLike, NDArray

from recallscope.figures.panels import (
    draw_attention,
    draw_curve,
    draw_excerpt,
    draw_matrix,
    draw_table,
    mark_classes,
)
from recallscope.figures.style import BLACK, COLUMN, PAGE, figure_style, new_figure

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
