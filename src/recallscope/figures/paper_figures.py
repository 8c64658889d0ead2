"""Every figure of the paper by name, and one of ours: which experiment it needs, and the function that draws it."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from recallscope.figures import circuit_overview, curve_figures, experiment_figures, grid_figures, inside_figures
from recallscope.sweeps.paper_grids import EXPERIMENTS


@dataclass(frozen=True)
class PaperFigure:
    """A figure: its name (a key of paper.py but for our own), what it shows, its experiment, and how it is drawn.

    `draw` takes the `PaperRuns` of a store. Without an experiment there is nothing to read, and it takes None as well.
    """

    name: str
    title: str
    experiment: str | None
    draw: Callable[[Any], Figure]


def _figure(name: str, title: str, experiment: str | None, draw: Callable[[Any], Figure]) -> None:
    FIGURES[name] = PaperFigure(name, title, experiment, draw)


FIGURES: dict[str, PaperFigure] = {}
_figure("fig-1", "recall over D and N, regimes (i) and (ii)", "dn-grid", grid_figures.dims_figure)
_figure("fig-2", "the circuit, step by step", None, circuit_overview.overview_figure)
_figure("fig-3", "hash tables of one trained model", "mechanism", inside_figures.first_tables_figure)
_figure("fig-4", "accuracy against 1/sigma", "curves", curve_figures.curves_figure)
_figure("fig-5", "layers: N-Lambda grid and its collapse, MQAR", "layers", curve_figures.layers_figure)
_figure("fig-6", "heads: N-M grids of four patterns", "heads", grid_figures.heads_figure)
_figure("fig-7", "recall over D and N, three regimes", "dn-grid", grid_figures.all_dims_figure)
_figure("fig-8", "accuracy against 1/sigma, with the grids", "curves", curve_figures.grids_and_curves_figure)
_figure("fig-9", "accuracy against 1/sigma, three regimes", "curves", curve_figures.all_curves_figure)
_figure("fig-10", "layers: AR and MQAR", "layers", curve_figures.all_layers_figure)
_figure("fig-11", "large vocabularies: V-L grid", "large-vocab", experiment_figures.large_vocab_figure)
_figure("fig-12", "large vocabularies: curves and slopes", "large-vocab", experiment_figures.vocab_curves_figure)
_figure("fig-13", "hash tables of three trained models", "mechanism", inside_figures.tables_figure)
_figure("fig-14", "attention of three trained models", "mechanism", inside_figures.attentions_figure)
_figure("fig-15", "copy and shift by the convolution", "mechanism", inside_figures.copies_figure)
_figure("fig-16", "invariant operators of three trained models", "mechanism", inside_figures.all_operators_figure)
_figure("fig-17", "the ablation ladder", "minimality", experiment_figures.ladder_figure)
_figure("fig-18", "repeated keys: depth and repeats", "repeated-keys", experiment_figures.repeated_keys_figure)
_figure("fig-19", "full model, seed by seed", "seeds", grid_figures.seed_grids_figure)
_figure("fig-20", "how many seeds converge", "seeds", grid_figures.reliability_figure)
_figure("laws", "ours: three laws against every trained linear cell", "dn-grid", experiment_figures.laws_figure)


def find_figures(name: str) -> list[PaperFigure]:
    """The figure of that name, those of an experiment, or all."""
    if name == "all":
        return list(FIGURES.values())
    if name in FIGURES:
        return [FIGURES[name]]
    if name in EXPERIMENTS:
        return [figure for figure in FIGURES.values() if figure.experiment == name]
    known = [*FIGURES, *EXPERIMENTS, "all"]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(known)}."
    raise ValueError(f"{name!r} is no figure and no experiment. {hint}")
