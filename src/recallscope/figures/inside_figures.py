"""The figures of the mechanism for the paper's models, a row each.

Paper: Fig. 3 (`fig:reversing-hidden`), Fig. 13-16 (`app-fig:reversing-hidden`, `fig:reversing-attn`,
`fig:reversing-conv`, `app-fig:reversing-operators`).
"""

from __future__ import annotations

from collections.abc import Callable

from matplotlib.figure import Figure, FigureBase

from recallscope.analysis.paper_runs import Inside, PaperRuns
from recallscope.figures.mechanism import (
    DIAGONALS,
    DOTTED,
    FRAMED,
    RINGS,
    draw_attention_pair,
    draw_copy_and_shift,
    draw_operators,
    draw_tables,
)
from recallscope.figures.sources import no_runs, source_line, write_source
from recallscope.figures.style import PAGE, figure_style

MECHANISM = "mechanism"


def first_tables_figure(runs: PaperRuns) -> Figure:
    """H, H' and H'' of the first model.   Paper: Fig. 3 (`fig:reversing-hidden`)."""
    return _rows(runs, _tables, width=1.6 * PAGE, height=2.9, note=RINGS, most=1)


def tables_figure(runs: PaperRuns) -> Figure:
    """H, H' and H'' of every model.   Paper: Fig. 13 (`app-fig:reversing-hidden`)."""
    return _rows(runs, _tables, width=1.6 * PAGE, height=2.9, note=RINGS)


def attentions_figure(runs: PaperRuns) -> Figure:
    """Ideal and actual attention of every model.   Paper: Fig. 14 (`fig:reversing-attn`)."""
    return _rows(runs, _attention, width=PAGE, height=3.3, note=DOTTED)


def copies_figure(runs: PaperRuns) -> Figure:
    """What the convolution copies and shifts, in every model.   Paper: Fig. 15 (`fig:reversing-conv`)."""
    return _rows(runs, _copy_and_shift, width=PAGE, height=3.3, note=DIAGONALS)


def all_operators_figure(runs: PaperRuns) -> Figure:
    """G_vv and G_kq of every model.   Paper: Fig. 16 (`app-fig:reversing-operators`)."""
    return _rows(runs, _operators, width=1.25 * PAGE, height=4.0, note=FRAMED)


def _rows(
    runs: PaperRuns,
    draw: Callable[[FigureBase, Inside], None],
    *,
    width: float,
    height: float,
    note: str,
    most: int | None = None,
) -> Figure:
    text = source_line(runs, MECHANISM, (MECHANISM,))
    found = runs.inside()
    models = found[:most]
    if not models:
        raise no_runs(runs, MECHANISM, "trained models but no look inside any")
    with figure_style():
        figure = Figure(figsize=(width, height * len(models) + 0.4), layout="constrained")
        for inside, row in zip(models, figure.subfigures(len(models), 1, squeeze=False)[:, 0], strict=True):
            draw(row, inside)
            row.suptitle(_name(inside), fontsize=9)
        some = f"{len(models)} of {len(found)} models; " if len(models) < len(found) else ""
        write_source(figure, f"{note}; {some}{text}")
    return figure


def _name(inside: Inside) -> str:
    model, task = inside.record.spec.model, inside.record.spec.task
    shown = len(inside.arrays["shown"])
    some = "" if shown == task.vocab_size else f", {shown} of the tokens"
    accuracy = f"accuracy {inside.record.test_accuracy:.4f}"
    return (
        f"$D={model.embed_dim}$, $N={model.state_dim}$, $V={task.vocab_size}$, $N_f={task.num_facts}${some}; {accuracy}"
    )


def _tables(figure: FigureBase, inside: Inside) -> None:
    arrays = inside.arrays
    facts = [(int(value), int(key)) for value, key in arrays["facts"]]
    draw_tables(figure, arrays["ideal_table"], arrays["hashed_table"], arrays["decoded_table"], facts)


def _attention(figure: FigureBase, inside: Inside) -> None:
    context = inside.record.spec.task.context_length
    draw_attention_pair(figure, inside.arrays["ideal_attention"], inside.arrays["attention"], context_length=context)


def _copy_and_shift(figure: FigureBase, inside: Inside) -> None:
    context = inside.record.spec.task.context_length
    draw_copy_and_shift(figure, inside.arrays["copied"], inside.arrays["shifted"], context_length=context)


def _operators(figure: FigureBase, inside: Inside) -> None:
    arrays = inside.arrays
    draw_operators(figure, arrays["value_operator"], arrays["match_operator"], delay=int(arrays["delay"]))
