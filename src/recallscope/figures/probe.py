"""Probes of checkpoints: recall against the number of facts, by how recent a fact is, and layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, ScalarFormatter

from recallscope.figures.style import BLUE, GREEN, GUESS, ORANGE, PAGE, PURPLE, SKY, VERMILION, new_figure
from recallscope.measuring.checkpoints.curves import LawCurve
from recallscope.measuring.checkpoints.record import Inside, ProbeRecord

COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)
MOST_LINES = 4  # numbers of facts whose recall by recency is drawn
STARTED = 0.98  # recall from which a curve by recency says nothing more than the one before it


def draw_recall(records: Sequence[ProbeRecord], ax: Axes) -> Axes:
    """Measured recall with its interval, n_50 as a line, controls as crosses; the law's curve only where it fits."""
    for record, label, colour in zip(records, labels(records), COLOURS, strict=False):
        points = record.points
        n = [point.num_facts for point in points]
        low, high = np.array([point.interval for point in points]).T
        ax.fill_between(n, low, high, color=colour, alpha=0.2, lw=0)
        ax.plot(n, [point.recall for point in points], "o-", color=colour, ms=3, lw=0.8, label=label)
        shape, half = record.law_shape, record.n_50
        if record.recalls and shape and shape.admitted and half.num_facts:
            many = np.geomspace(min(n), max(n), 100)
            curve = LawCurve(np.array(shape.intercept), np.array(shape.slope))
            ax.plot(many, curve.recall(many), "--", color=colour, lw=1)
        controls = [max(point.no_facts, point.shuffled) for point in points]
        ax.plot(n, controls, "x", color=colour, ms=3, alpha=0.6)
        if half.num_facts:
            ax.plot([half.num_facts] * 2, [0, 0.5], ":", color=colour, lw=1)
            ax.text(half.num_facts, 0.51, f" {half.num_facts:.0f}", color=colour, fontsize=7)
    ax.axhline(0.5, color=GUESS, lw=0.6, zorder=0)
    _log_facts(ax, [point.num_facts for record in records for point in record.points])
    ax.set(xlabel="facts n", ylabel="accuracy of forced choice", ylim=(-0.02, 1.03), title="recall (×: best control)")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
    return ax


def labels(records: Sequence[ProbeRecord]) -> list[str]:
    """Names, with what tells the records apart: how they were asked, and their seeds."""
    ways = [(record.name, record.how, f"seed {record.settings['seed']}") for record in records]
    several = [len({way[part] for way in ways}) > 1 for part in range(3)]
    shown = several if any(several) else [True, False, False]
    return [", ".join(text for text, here in zip(way, shown, strict=True) if here) for way in ways]


def draw_recency(records: Sequence[ProbeRecord], ax: Axes) -> Axes:
    """Recall by the number of facts after the queried one: at a few n, or of several records near n_50."""
    for record, name, colour in zip(records, labels(records), COLOURS, strict=False):
        telling = [point for point in record.points if point.recall < STARTED] or record.points[-1:]
        chosen = telling[:: -(-len(telling) // MOST_LINES)]
        if len(records) > 1:
            chosen = [min(telling, key=lambda point: abs(point.recall - 0.5))]
        for number, point in enumerate(chosen):
            groups = len(point.by_place)
            later = point.num_facts * (groups - 0.5 - np.arange(groups)) / groups
            label = f"n = {point.num_facts}" if len(records) == 1 else f"{name}, n = {point.num_facts}"
            alpha = 1 - 0.75 * number / max(len(chosen), 1)
            ax.plot(later, point.by_place, "o-", ms=2.5, lw=1, color=colour, alpha=alpha, label=label)
    ax.set(xlabel="later facts", ylim=(-0.02, 1.03), title="recall by recency")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=2)
    return ax


def draw_layers(inside: Inside, ax: Axes) -> Axes:
    """Recall lost without each layer's memory, and what a linear decoder reads from its state."""
    layers = [facts.layer for facts in inside.layers]
    ax.bar(layers, [facts.lost for facts in inside.layers], 0.7, color=SKY, label="recall lost without it")
    read = [
        (facts.layer, facts.decoded, facts.decoded_control or 0.0)
        for facts in inside.layers
        if facts.decoded is not None
    ]
    if read:
        where, decoded, control = zip(*read, strict=True)
        ax.plot(where, decoded, "o", color=VERMILION, label="value read from its state")
        ax.plot(where, control, "x", color=GUESS, label="the same, values shuffled")
        ax.axhline(1 / inside.choices, color=GUESS, lw=0.6, ls="--")
    ax.axhline(0, color="black", lw=0.6)
    ax.set(xlabel="layer", ylim=(min(-0.03, ax.get_ylim()[0]), 1.03), title=f"layers, n = {inside.num_facts}")
    if len(layers) <= 24:
        ax.set_xticks(layers)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22))
    return ax


def probe_figure(records: Sequence[ProbeRecord]) -> Figure:
    """One record with its layers, or several side by side."""
    inside = records[0].inside if len(records) == 1 else None
    panels = 3 if inside and inside.layers else 2
    figure = new_figure(PAGE, 3.0)
    axes = figure.subplots(1, panels)
    draw_recall(records, axes[0])
    draw_recency(records, axes[1])
    if inside and panels == 3:
        draw_layers(inside, axes[2])
    return figure


def _log_facts(ax: Axes, facts: Sequence[int]) -> None:
    ax.set_xscale("log", base=2)
    ticks = [2**power for power in range(21) if min(facts) <= 2**power <= max(facts)]
    ax.set_xticks(ticks[:: -(-len(ticks) // 8)] or [min(facts)])
    ax.xaxis.set_major_formatter(ScalarFormatter())
    ax.xaxis.set_minor_locator(NullLocator())
