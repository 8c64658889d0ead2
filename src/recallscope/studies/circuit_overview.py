"""The recall circuit as a drawing: what each step does, in the paper's order, with the shape of what leaves it."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from recallscope.figures.style import BLACK, BLUE, GREEN, ORANGE, PAGE, PURPLE, SKY, VERMILION, figure_style, new_figure
from recallscope.studies.experiment import PaperFigure


@dataclass(frozen=True)
class Step:
    """One box: its name, the weight it uses, its formula, and the shape of the result for a sequence of L tokens."""

    name: str
    weight: str
    formula: str
    shape: str
    colour: str


STEPS = (
    Step("1  embed", r"$E$: $D \times V$", r"$E\,x_t$", r"$L \times D$", BLUE),
    Step("2  copy & shift", r"$P_{\rm in}$: $2D \times D$" + "\n" + r"$W_{\rm conv}$: $2D \times 2$",
         r"$\hat x_t=\binom{E\,x_{t-1}}{E\,x_t}$", r"$L \times 2D$", SKY),
    Step("3  hash", r"$S_B,\,S_C$: $N \times 2D$" + "\n" + r"$\tilde E=FE$: $N \times V$",
         r"$B_t=\tilde E\,x_{t-1}$" + "\n" + r"$C_t=\tilde E\,x_t$", "$B,\\,C$\n" + r"$L \times N$", GREEN),
    Step("4  store", "outer products", r"$h_t=\sum_{\tau\leq t}\hat x_\tau B_\tau^\top$", r"$2D \times N$", ORANGE),
    Step("5  match", r"$\tilde E^\top \tilde E\approx I$",
         r"$h_t C_t=\sum_\tau \hat x_\tau(B_\tau^\top C_t)$" + "\n" + r"$\approx \hat x_{\tau^*}$",
         r"$L \times 2D$", VERMILION),
    Step("6  select", r"$P_{\rm out}$: $D \times 2D$", r"$(0\;I)\,\hat x_{\tau^*}=E\,x_{\tau^*}$",
         r"$L \times D$", PURPLE),
    Step("7  decode", r"$E^\top$: $V \times D$", r"$E^\top E\,x_{\tau^*}\approx x_{\tau^*}$", r"$L \times V$", BLUE),
)  # fmt: skip
PLACES = ((0, 1), (1, 1), (2, 1), (3, 1), (2.5, 0), (1.5, 0), (0.5, 0))  # column and row of each box, read as a loop
WIDTH, HEIGHT = 0.78, 0.66


def overview_figure(runs: object = None) -> Figure:
    """From a token to the value that once followed it. Needs no runs.   Paper: Fig. 2 (`fig:recallcirc`).

    Departs: the caption gives F E the shape N x D; it is N x V.
    """
    with figure_style():
        figure = new_figure(1.25 * PAGE, 3.9)
        ax = figure.subplots()
        draw_circuit(ax)
        figure.supxlabel(
            r"$x_t$: one-hot token. The pair $(x_{\tau-1}, x_\tau)$, a key and its value, is stored under "
            r"$\tilde E\,x_{\tau-1}$ and found by $\tilde E\,x_t$ when $x_t=x_{\tau^*-1}$.",
            fontsize=7,
            color="#555555",
        )
    return figure


def draw_circuit(ax: Axes) -> Axes:
    """Boxes and arrows; shapes stand on the arrows that carry them."""
    for step, (column, row) in zip(STEPS, PLACES, strict=True):
        _box(ax, step, column, row)
    for step, start, end in zip(STEPS, PLACES, PLACES[1:], strict=False):
        _arrow_between(ax, start, end, step.shape)
    first, last = PLACES[0][0] - WIDTH / 2 - 0.02, PLACES[-1][0] - WIDTH / 2 - 0.02
    _arrow(ax, (PLACES[0][0] - 0.72, 1), (first, 1), "tokens $x$\n" + r"$L \times V$", above=0.05)
    _arrow(ax, (last, 0), (PLACES[-1][0] - 0.85, 0), f"logits $y$\n{STEPS[-1].shape}", above=0.05)
    ax.set(xlim=(-0.85, 3.75), ylim=(-0.42, 1.42))
    ax.set_axis_off()
    return ax


def _box(ax: Axes, step: Step, column: float, row: float) -> None:
    left, bottom = column - WIDTH / 2 + 0.02, row - HEIGHT / 2
    ax.add_patch(
        FancyBboxPatch(
            (left, bottom), WIDTH - 0.04, HEIGHT, boxstyle="round,pad=0.02",
            facecolor=to_rgba(step.colour, 0.16), edgecolor=step.colour, linewidth=1.2,
        )
    )  # fmt: skip
    ax.text(column, row + 0.24, step.name, ha="center", va="center", fontsize=9, fontweight="bold")
    ax.text(column, row + 0.03, step.formula, ha="center", va="center", fontsize=8.5)
    ax.text(column, row - 0.22, step.weight, ha="center", va="center", fontsize=7, color="#444444")


def _arrow_between(ax: Axes, start: tuple[float, float], end: tuple[float, float], shape: str) -> None:
    """From box to box, along a row or down to the next."""
    if start[1] == end[1]:
        reach = (WIDTH / 2 + 0.01) * (1 if end[0] > start[0] else -1)
        _arrow(ax, (start[0] + reach, start[1]), (end[0] - reach, end[1]), shape, above=0.06, fontsize=6.5)
    else:
        tail, head = (start[0], start[1] - HEIGHT / 2 - 0.03), (end[0] + 0.2, end[1] + HEIGHT / 2 + 0.03)
        _arrow(ax, tail, head, shape, right=0.06, above=-0.05, ha="left", fontsize=6.5)


def _arrow(
    ax: Axes, tail: tuple[float, float], head: tuple[float, float], text: str,
    *, right: float = 0.0, above: float, ha: str = "center", fontsize: float = 7,
) -> None:  # fmt: skip
    """An arrow with a text, so far right of and above its middle."""
    ax.add_patch(FancyArrowPatch(tail, head, arrowstyle="-|>", mutation_scale=9, color=BLACK, lw=1))
    middle = (tail[0] + head[0]) / 2 + right, (tail[1] + head[1]) / 2 + above
    ax.text(*middle, text, ha=ha, va="bottom", fontsize=fontsize)


OVERVIEW = PaperFigure("fig-2", "the circuit, step by step", None, overview_figure)
