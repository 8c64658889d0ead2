"""One look for all figures: sizes, fonts, colours that stay apart for colour-blind readers, and reproducible files."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.figure import Figure

# Okabe and Ito's palette, in the order lines are given out
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
SIGNED = "RdBu_r"  # matrices with either sign; white is 0
DARKEST = "#67001F"  # the positive end of it
AMOUNT = "cividis"  # shares and accuracies from 0 up
GUESS = "#888888"  # lines of guessing, and of what a law says
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


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches, whose panels make room for one another."""
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Figure, stem: Path, kinds: Sequence[str] = ("png", "svg")) -> list[Path]:
    """PNG and SVG beside each other; the same figure gives the same bytes."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    paths = []
    for suffix, data in figure_files(figure, kinds).items():
        paths.append(stem.with_name(stem.name + suffix))
        paths[-1].write_bytes(data)
    return paths


def figure_files(figure: Figure, kinds: Sequence[str] = ("png", "svg")) -> dict[str, bytes]:
    """PNG and SVG, by suffix."""
    return {f".{kind}": _saved(figure, kind) for kind in kinds}


def write_figure(figure: Figure, path: Path) -> None:
    """PNG or SVG, by the ending of the name."""
    check_picture(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_saved(figure, path.suffix[1:].lower()))


def check_picture(path: Path) -> None:
    """Check before any work is done that a picture can be written under this name."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise ValueError(f"{path.name!r}: the ending says the format, .png or .svg. Try {path.stem}.png.")
    if path.is_dir():
        raise ValueError(f"{path} is a folder. Name a file, such as {path}/plot.png.")


def small_picture(figure: Figure, most_bytes: int = 300_000) -> bytes:
    """PNG or SVG, whichever is smaller; if that is too large, a PNG of 256 colours with as many dots as fit."""
    png = _saved(figure, "png")
    picture = min(png, _saved(figure, "svg"), key=len)
    for dots in (DOTS_PER_INCH, 120, 100, 80, 60):
        if len(picture) <= most_bytes:
            break
        picture = _few_colours(png if dots == DOTS_PER_INCH else _saved(figure, "png", dots))
    return picture


def _saved(figure: Figure, kind: str, dots: int = DOTS_PER_INCH) -> bytes:
    """The file, without a date or a name of the software in it."""
    buffer = io.BytesIO()
    with figure_style():
        absent = {"png": ("Software",), "svg": ("Date", "Creator")}[kind]
        figure.savefig(buffer, format=kind, dpi=dots, metadata=dict.fromkeys(absent))
    return buffer.getvalue()


def _few_colours(png: bytes) -> bytes:
    """The same picture with a palette. Pillow is there wherever matplotlib is."""
    from PIL import Image

    buffer = io.BytesIO()
    colours = Image.open(io.BytesIO(png)).convert("RGB")
    palette = colours.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    palette.save(buffer, format="png", optimize=True)
    return buffer.getvalue()
