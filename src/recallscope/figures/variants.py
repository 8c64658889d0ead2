"""Many models side by side: recall against their size, by the age of the fact, and where keys are written again;
and a measured model among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import ScalarFormatter
from numpy.typing import ArrayLike

from recallscope.figures.style import BLACK, BLUE, GREEN, GUESS, ORANGE, PURPLE, SKY, VERMILION
from recallscope.measuring.measurement import Measurement

LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))


@dataclass(frozen=True)
class Look:
    """Colour and marker of a model; hollow markers are for models of several layers."""

    colour: str
    marker: str
    hollow: bool = False

    @property
    def dots(self) -> dict[str, Any]:
        """How matplotlib is told."""
        return {"color": self.colour, "markerfacecolor": "white" if self.hollow else self.colour}


@dataclass(frozen=True)
class Dot:
    """A model: its size (None if it grows), the accuracies of its seeds, the 95% interval of their mean (nan if
    unknown), and what it is compared with (nan if nothing)."""

    label: str
    size: int | None
    seeds: tuple[float, ...]
    interval: tuple[float, float]
    beside: float = float("nan")

    @property
    def mean(self) -> float:
        """Of the seeds."""
        return float(np.mean(self.seeds))


def draw_beside(dots: Mapping[str, Dot], ax: Axes, *, looks: Mapping[str, Look]) -> Axes:
    """A row per model, in the order of the looks: its mean with the interval, or every seed of a hollow one; a bar for
    what it is compared with; its size to the right."""
    for row, (label, look) in enumerate(looks.items()):
        if label not in dots:
            continue
        dot = dots[label]
        ax.plot([dot.beside, dot.mean], [row, row], color=look.colour, lw=0.8, alpha=0.6, zorder=1)
        ax.plot([dot.beside], [row], "|", color=BLACK, ms=8, mew=1, zorder=2)
        if look.hollow:
            ax.plot(dot.seeds, [row] * len(dot.seeds), look.marker, ms=4, mew=0.8, zorder=3, **look.dots)
        else:
            ends = np.nan_to_num([[max(dot.mean - dot.interval[0], 0)], [max(dot.interval[1] - dot.mean, 0)]])
            ax.errorbar([dot.mean], [row], xerr=ends, fmt=look.marker, ms=4, lw=0.9, zorder=3, **look.dots)
        size = "grows" if dot.size is None else f"{dot.size:,}"
        ax.text(1.03, row, size, transform=ax.get_yaxis_transform(), fontsize=5.5, va="center", color="#555555")
    ax.set(xlim=(-0.03, 1.03), ylim=(len(looks) - 0.4, -0.6), xticks=(0, 0.5, 1))
    ax.set_yticks(range(len(looks)), list(looks))
    ax.grid(axis="y", color="#EEEEEE", lw=0.6, zorder=0)
    ax.tick_params(axis="y", length=0)
    return ax


def draw_ages(lines: Mapping[str, Sequence[float]], ax: Axes, *, looks: Mapping[str, Look], title: str = "") -> Axes:
    """Recall by how many facts were written after the one that is asked for."""
    for (label, oldest_first), (mark, line) in zip(
        lines.items(), cycle(zip("osvDP^", LINES, strict=True)), strict=False
    ):
        newest_first, colour = list(oldest_first)[::-1], looks[label].colour
        style: dict[str, Any] = {"marker": mark, "ms": 3, "lw": 1, "color": colour, "mfc": "white", "ls": line}
        ax.plot(range(len(newest_first)), newest_first, label=label, **style)
    ax.set(xlabel="facts written after it", ylim=(-0.03, 1.05), title=title)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.24))
    return ax


def draw_seeds(
    seeds: Mapping[str, Sequence[float]],
    ax: Axes,
    *,
    looks: Mapping[str, Look],
    guess: float,
    name: str = "guess",
    laws: Mapping[str, float] | None = None,
) -> Axes:
    """A row per model: every seed, the mean as a line, what guessing gives, and what laws say, for the legend."""
    for (law, p), line in zip((laws or {}).items(), ("-", "--", "-."), strict=False):
        ax.axvline(p, color="#555555", ls=line, lw=0.9, zorder=1, label=law)
    ax.axvline(guess, color=GUESS, ls=":" if laws else "--", lw=1, zorder=1)
    ax.text(guess, 1.01, name, ha="center", va="bottom", color="#555555", transform=ax.get_xaxis_transform())
    for row, (label, values) in enumerate(seeds.items()):
        if not values:
            continue
        ax.plot(values, [row] * len(values), looks[label].marker, alpha=0.8, zorder=3, **looks[label].dots)
        ax.plot([np.mean(values)], [row], "|", ms=13, mew=1.2, color=looks[label].colour, zorder=2)
    ax.set(xlim=(-0.03, 1.03), ylim=(len(seeds) - 0.4, -0.9), xlabel="accuracy")
    ax.set_yticks(range(len(seeds)), list(seeds))
    ax.grid(axis="y", color="#EEEEEE", lw=0.6, zorder=0)
    ax.tick_params(axis="y", length=0)
    return ax


MARKS = (("o", BLUE), ("s", GREEN), ("^", ORANGE), ("D", PURPLE), ("v", SKY), ("P", BLACK))


def draw_measured(measured: Measurement, ax: Axes, curves: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> Axes:
    """The model and those beside it, each with its 95% interval, over the effective state; what is expected as curves.

    One marker per architecture, `measured.drawn`. A hollow marker is a failed run: a seed of it is at chance. A model
    without a fixed state, or whose state was not measured, is a horizontal line.
    """
    for (label, (states, recall)), line in zip(curves.items(), ("-", ":", "--"), strict=False):
        ax.plot(states, recall, line, color=GUESS, label=label)
    for index, row in enumerate(measured.drawn):
        colour, mark = MARKS[index % len(MARKS)][1], MARKS[(index + index // len(MARKS)) % len(MARKS)][0]
        label = row.label.rpartition("/")[2] + ("" if row.learned else " (did not learn)")
        look = {"color": colour, "markerfacecolor": colour if row.learned else "white", "ms": 5, "zorder": 3}
        _draw_point(row.state_entries, row.accuracy, row.interval, ax, mark, label, look)
    own, learned = measured.accuracy, measured.verdict.learned
    label = measured.label + ("" if learned else f" ({measured.verdict.word})")
    look = {"color": VERMILION, "markerfacecolor": VERMILION if learned else "white", "ms": 12, "zorder": 5}
    _draw_point(measured.state_entries, own.mean, own.interval, ax, "*", label, look)
    if measured.state_entries and len(own.seeds) > 1:
        ax.plot([measured.state_entries] * len(own.seeds), own.seeds, "_", color=VERMILION, zorder=4)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.set(xlabel="effective state entries", ylabel="recall", ylim=(0, 1.03))
    ax.set_title(measured.title, fontsize=8, loc="left")
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def _draw_point(
    size: int | None, mean: float, ends: tuple[float, float] | None, ax: Axes, mark: str, label: str,
    look: Mapping[str, Any],
) -> None:  # fmt: skip
    """A model by its effective state and recall; one without a state of fixed size is a line across."""
    low, high = ends or (mean, mean)
    if size:
        bars = [[mean - low], [high - mean]]
        ax.errorbar([size], [mean], bars, fmt=mark, lw=0.9, capsize=2.5, label=label, **look)
        return
    ax.axhspan(low, high, color=look["color"], alpha=0.15, linewidth=0)
    shown = f"{label}: no state" if size == 0 else f"{label}: no fixed state, or not measured"
    ax.plot([0, 1], [mean, mean], f"{mark}-", lw=0.9, transform=ax.get_yaxis_transform(), label=shown, **look)
