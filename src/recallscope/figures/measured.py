"""Where a measured model stands: recall against the size of the state."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import ScalarFormatter
from numpy.typing import ArrayLike

from recallscope.figures.style import BLACK, BLUE, GREEN, GUESS, ORANGE, PURPLE, SKY, VERMILION
from recallscope.measuring.measurement import Measurement

MARKS = (("o", BLUE), ("s", GREEN), ("^", ORANGE), ("D", PURPLE), ("v", SKY), ("P", BLACK))


def draw_measured(measured: Measurement, ax: Axes, curves: Mapping[str, tuple[ArrayLike, ArrayLike]]) -> Axes:
    """The model with its interval, the runs beside it, and what is expected as curves over the state entries.

    A model whose state was not measured is a horizontal line.
    """
    for (label, (states, recall)), line in zip(curves.items(), ("-", ":", "--"), strict=False):
        ax.plot(states, recall, line, color=GUESS, label=label)
    kinds = list(dict.fromkeys(row.model for row in measured.beside))
    for index, kind in enumerate(kinds):
        rows = [row for row in measured.beside if row.model == kind and row.state_entries]
        mark, colour = MARKS[index % len(MARKS)]
        points = np.array([(row.state_entries, row.accuracy) for row in rows]).reshape(-1, 2)
        ax.plot(*points.T, mark, color=colour, alpha=0.6, markeredgewidth=0, label=kind)
    mean, (low, high) = measured.accuracy.mean, measured.accuracy.interval
    label = f"measured: {measured.name.rpartition('/')[2]}"
    if measured.state_entries is None:
        ax.axhspan(low, high, color=VERMILION, alpha=0.25, linewidth=0)
        ax.axhline(mean, color=VERMILION, label=f"{label} (state not measured)")
    else:
        S = measured.state_entries
        ax.errorbar(
            [S], [mean], [[mean - low], [high - mean]], fmt="*", color=VERMILION, markersize=10, capsize=3, label=label,
            zorder=5,
        )  # fmt: skip
        if len(measured.accuracy.seeds) > 1:
            ax.plot([S] * len(measured.accuracy.seeds), measured.accuracy.seeds, "_", color=VERMILION)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.set(xlabel="state entries", ylabel="recall", ylim=(0, 1.03))
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax
