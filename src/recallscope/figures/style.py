"""One look for all figures: sizes, fonts, colours that stay apart for colour-blind readers, and reproducible files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

# Okabe and Ito's palette, in the order lines are given out
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
SIGNED = "RdBu_r"  # matrices with either sign; white is 0
DARKEST = "#67001F"  # the positive end of it
AMOUNT = "cividis"  # shares and accuracies from 0 up
COLUMN, PAGE = 3.4, 7.0  # widths in inches
DOTS_PER_INCH = 150

RULES: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.titlesize": 9,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "axes.prop_cycle": cycler(color=[BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, BLACK]),
    "image.interpolation": "nearest",
    "figure.dpi": DOTS_PER_INCH,
    "savefig.dpi": DOTS_PER_INCH,
    "svg.hashsalt": "recallscope",
    "svg.fonttype": "path",
}


@contextmanager
def figure_style() -> Iterator[None]:
    """Everything drawn inside looks alike; nothing outside is touched."""
    with mpl.rc_context(RULES):
        yield


def save_figure(figure: Figure, stem: Path) -> list[Path]:
    """PNG and SVG beside each other; the same figure gives the same bytes."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    png, svg = stem.with_name(stem.name + ".png"), stem.with_name(stem.name + ".svg")
    with figure_style():
        figure.savefig(png, metadata={"Software": None})
        figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return [png, svg]
