"""Two columns of a table of runs against each other: a dot per run, a line through the means, a colour per group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import cycle
from math import log2
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis

from recallscope.analysis.table import Points, all_numbers, sorted_values
from recallscope.figures.accuracy_panels import LETTERS, MOST_TICKS, shades
from recallscope.figures.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION
from recallscope.specs import Value

FEW = 7  # groups with a colour of their own; more of them, if they are numbers, are shades from dark to light
WIDE = 8.0  # numbers whose largest is so many times the least are spread by their logarithm
MARKERS = "osD^vP*X"


def draw_columns(
    series: Sequence[Points], ax: Axes, *, x: str, y: str, title: str = "", beside: Sequence[Points] = ()
) -> Axes:
    """Runs as dots, means as lines, or as dashes where x is a text. Texts are given places of their own in order.

    `beside` are the series of all panels of a figure: they decide axes and colours, so that panels can be compared.
    """
    every = beside or series
    place_x = _set_axis(ax.xaxis, [value for one in every for value in one.x])
    place_y = _set_axis(ax.yaxis, [value for one in every for value in one.y])
    looks = _looks([one.group for one in every])
    for one in series:
        colour, marker = looks[one.group]
        dots = [place_x(value) for value in one.x], [place_y(value) for value in one.y]
        ax.scatter(*dots, s=14, color=colour, marker=marker, alpha=0.65, linewidths=0, zorder=3, label=shown(one.group))
        means = [place_x(at) for at, _ in one.means], [mean for _, mean in one.means]
        if all_numbers([at for at, _ in one.means]):
            ax.plot(*means, color=colour, zorder=2)
        else:  # nothing lies between two texts: a dash for each
            ax.scatter(*means, s=220, color=colour, marker="_", zorder=2)
    if y.endswith("accuracy"):
        ax.set_ylim(-0.03, 1.03)
    ax.set(xlabel=_name(x), ylabel=_name(y), title=title)
    return ax


def shown(value: Value) -> str:
    """A value as a reader writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _name(column: str) -> str:
    return f"{column.replace('_', ' ')} {LETTERS[column]}" if column in LETTERS else column.replace("_", " ")


def _looks(groups: Sequence[Value]) -> dict[Value, tuple[Any, str]]:
    """A colour and a marker for every group; many numbers get shades by their size."""
    distinct = sorted_values(groups)
    few = cycle((BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK))
    colours: Iterable[Any] = shades(len(distinct)) if len(distinct) > FEW and all_numbers(distinct) else few
    return {group: look for group, *look in zip(distinct, colours, cycle(MARKERS), strict=False)}  # type: ignore[misc]


def _set_axis(axis: Axis, values: Sequence[Value]) -> Callable[[Any], float]:
    """Scale and ticks for these values; returns the function from a value to its place on the axis."""
    distinct: list[Any] = sorted_values(values)
    if not all_numbers(distinct):
        axis.set_ticks(range(len(distinct)), [shown(value) for value in distinct])
        axis.axes.margins(0.1)
        return distinct.index
    if axis is axis.axes.xaxis:
        if distinct and distinct[0] > 0 and distinct[-1] >= WIDE * distinct[0]:
            axis.axes.set_xscale("log", base=2)
        if len(distinct) <= MOST_TICKS:
            ticks = _apart(distinct, logarithmic=axis.get_scale() == "log")
            axis.set_ticks(ticks, [shown(value) for value in ticks])
            axis.set_ticks([], minor=True)
    return float


def _apart(values: Sequence[float], *, logarithmic: bool) -> list[float]:
    """The values whose labels do not run into the one before."""
    places = [log2(value) if logarithmic else value for value in values]
    kept: list[int] = []
    for index, place in enumerate(places):
        if not kept or place - places[kept[-1]] >= (places[-1] - places[0]) / (2 * MOST_TICKS):
            kept.append(index)
    return [values[index] for index in kept]
