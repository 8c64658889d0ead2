"""The picture of `recallscope fit --figure`: one row per group of runs, its collapse and the law that is closest."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from recallscope.analysis.group_fit import GroupFit

MOST_ROWS = 12


def write_fit_figure(found: Sequence[GroupFit], path: Path, *, bootstrap: int) -> int:
    """Left, accuracy against x with the fitted a; right, measured against what the closest law predicts.

    Groups that are too small to fit are left out; returns how many are drawn.
    """
    from recallscope.analysis.collapse import collapse_curve
    from recallscope.analysis.compare import LawPoints
    from recallscope.figures.accuracy_panels import draw_collapse, draw_law_points, draw_size_key
    from recallscope.figures.style import BLUE, figure_style, new_figure, write_figure

    fitted = [one for one in found if one.fits]
    if not 1 <= len(fitted) <= MOST_ROWS:
        raise ValueError(
            f"{len(fitted)} groups of these runs can be fitted, and a figure takes 1 to {MOST_ROWS}. "
            f"Choose with --where, such as --where model=linear_mamba."
        )
    with figure_style():
        figure = new_figure(6.8, 3.0 * len(fitted))
        panels = figure.subplots(len(fitted), 2, squeeze=False)
        for one, (left, right) in zip(fitted, panels, strict=True):
            a, law, label = one.fits[0].a, one.laws[0], one.group.label
            curve = collapse_curve(one.grid, a, np.random.default_rng(0), bootstrap=bootstrap)
            draw_collapse(curve, left, name_a=f"{a:.2f}", sizes=curve.group)
            draw_size_key(figure, [left], curve.group, "$N$")
            left.set_title("\n".join(textwrap.wrap(label, 44, max_lines=2)))
            points = LawPoints(
                law.law,
                {label: np.array([cell.predicted for cell in law.cells])},
                {label: np.array([cell.measured for cell in law.cells])},
                law.mean_error,
            )
            title = f"{law.law}: mean error {law.mean_error:.3f}"
            draw_law_points(points, right, title=title, colours={label: BLUE}, markers={label: "o"})
            right.set_xlabel("predicted accuracy")
    write_figure(figure, path)
    return len(fitted)
