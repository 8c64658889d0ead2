"""Accuracy against 1/sigma as panels of a figure: the fitted curve, the printed one, and the runs around them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.collapse import CollapseCurve, collapse_curve
from recallscope.analysis.table import COMPARED, DIMENSIONS, learned
from recallscope.studies.experiment import Part
from recallscope.studies.paper_runs import PaperRuns, draw_part

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# the a of Rem 4.3 and its name; for the full model half of it, the paper's heuristic
PRINTED_A = {("linear", "ar"): (1.0, "1"), ("linear", "mqar"): (1.25, "5/4"), ("full", "mqar"): (0.625, "5/8")}
NOTE = "dashed: as printed; solid: fitted, its 95\u00a0% band from resampled cells and seed noise"


def curve_of(
    runs: PaperRuns, label: str, a: float, axes: Sequence[str] = DIMENSIONS, **options: Any
) -> CollapseCurve | None:
    """The collapse of a part's runs with this a, without seeds that failed; None without runs."""
    rows = learned(runs.rows(label))
    if rows.empty:
        return None
    grid = AccuracyGrid.from_runs(rows, axes, reduce=COMPARED)
    return collapse_curve(grid, a, np.random.default_rng(0), noise=runs.noise(rows), **options)


def draw_curve(
    runs: PaperRuns, part: Part | None, curve: CollapseCurve | None, ax: Axes, name_a: str, sizes: Sequence[float]
) -> None:
    """A collapse with colours for the sizes of all panels; without runs as `draw_part` does."""
    from recallscope.figures.accuracy_panels import draw_collapse

    if curve:
        draw_collapse(curve, ax, name_a=name_a, group_range=(min(sizes), max(sizes)))
    else:
        draw_part(runs, part, ax).set_box_aspect(None)
