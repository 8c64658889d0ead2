"""`recallscope fit`: what a store's runs say about the scaling law, and which law of the catalogue says it best."""

from __future__ import annotations

import shlex
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import tyro

from recallscope.cli.flags import OptionalInt, OptionalPath, Unset
from recallscope.cli.output import console, number, print_json, show, table, warn
from recallscope.health import Kind

if TYPE_CHECKING:
    from recallscope.analysis.collapse import GroupFit


@dataclass(kw_only=True)
class FitStore:
    """recallscope fit STORE

    Fit a and b of Phi(x - b), x = sqrt(N D / (a N_f + N)), to the runs of a store, task by task and model by model,
    with 95 % intervals from resampling cells, seed noise included where cells have several seeds; also with the
    two-moment form. Then compare all laws.
    """

    store: Annotated[Path, tyro.conf.Positional]
    """Folder of the runs."""
    where: Annotated[tuple[str, ...], Unset] = ()
    """Only runs that satisfy these, such as model=linear_mamba or batch_size=128."""
    exclude: Annotated[tuple[Kind, ...], Unset] = ()
    """Leave out runs with these warnings: diverged, still-improving, at-chance."""
    reduce: Literal["mean", "best", "seed"] = "mean"
    """Of the seeds of a cell: their mean, the best, or the one of --seed."""
    seed: OptionalInt = None
    """Which seed (with --reduce seed)."""
    bootstrap: int = 200
    """Resamplings behind the intervals; 0 for none."""
    cells: bool = False
    """Print the comparison cell by cell, for the closest law and those of --law."""
    law: Annotated[tuple[str, ...], Unset] = ()
    """Only these laws (see: recallscope laws)."""
    figure: OptionalPath = None
    """Also draw the fit and the closest law, .png or .svg."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Read the store, split it, fit and compare."""
        if not 0 <= self.bootstrap <= 10**5:
            raise ValueError(f"bootstrap={self.bootstrap} is outside 0..100000.")
        if (self.seed is None) == (self.reduce == "seed"):
            raise ValueError("--seed and --reduce seed go together: which seed of each cell is to be taken?")
        from recallscope.analysis.collapse import fit_group
        from recallscope.analysis.table import finished_runs, group_runs
        from recallscope.runs.store import RunStore
        from recallscope.runs.table import damage
        from recallscope.theory.law import LAWS, find_law

        if self.figure:
            from recallscope.figures.style import check_picture

            check_picture(self.figure)
        laws = [find_law(name) for name in self.law] or list(LAWS)
        store, of_seed = RunStore(self.store), [f"seed={self.seed}"] if self.reduce == "seed" else []
        found = finished_runs(store, [*self.where, *of_seed])
        warn(damage(store))
        dropped = found["warning"].isin(self.exclude)
        rows = found[~dropped]
        warnings, left_out = (Counter(filter(None, found["warning"][here].dropna())) for here in (~dropped, dropped))
        if rows.empty:
            raise ValueError(
                f"{self.store} has no finished run that satisfies this ({left_out.total()} left out by warnings). "
                f"recallscope store list {shlex.quote(str(self.store))} shows what it has."
            )
        options: dict[str, Any] = {"reduce": self.reduce, "seed": self.seed, "bootstrap": self.bootstrap}
        answers = [fit_group(group, laws, **options) for group in group_runs(rows)]
        if self.figure:
            from recallscope.cli.fit import write_fit_figure

            rows_drawn = write_fit_figure(answers, self.figure, bootstrap=self.bootstrap)
        if self.json:
            counts = {"warnings": warnings, "left_out": left_out}
            print_json(counts | {"experiments": [answer.data for answer in answers]})
        else:
            if left_out:
                print(f"left out {left_out.total()} of {len(found)} runs: {_counted(left_out)}")
            if warnings:
                print(f"{warnings.total()} of {len(rows)} runs have warnings: {_counted(warnings)} (see --exclude)")
            for answer in answers:
                self._print(answer)
            if self.figure:
                print(f"{rows_drawn} of {len(answers)} groups drawn in {self.figure}")
        return 0

    def _print(self, answer: GroupFit) -> None:
        show(answer.sentences, bold=1)
        laws = answer.laws
        rows = [(c.law, *map(number, (c.mean_error, c.max_error, c.bias)), str(len(c.cells))) for c in laws]
        caption = "errors are |measured - predicted|; bias is the mean of measured minus predicted"
        columns = ("law", "mean error", "max", "bias", "cells")
        console().print(table(columns, rows, left=("law",), caption=caption, caption_justify="left"))
        for c in (laws if self.law else laws[:1]) if self.cells else ():
            names = [*(c.cells[0].fields if c.cells else ()), "measured", "predicted", "difference"]
            cells = [
                [*map(str, cell.fields.values()), number(cell.measured), number(cell.predicted), f"{cell.error:+.4f}"]
                for cell in c.cells
            ]
            console().print(table(names, cells, title=c.law, title_justify="left"))
        show([""])


def _counted(warnings: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in warnings.most_common())


MOST_ROWS = 12


def write_fit_figure(found: Sequence[GroupFit], path: Path, *, bootstrap: int) -> int:
    """Left, accuracy against x with the fitted a; right, measured against what the closest law predicts.

    Groups that are too small to fit are left out; returns how many are drawn.
    """
    from recallscope.analysis.collapse import collapse_curve
    from recallscope.analysis.compare import LawPoints
    from recallscope.figures.accuracy_panels import draw_collapse, draw_law_points, draw_size_bar
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
            draw_collapse(curve, left, name_a=f"{a:.2f}", group_range=(curve.group.min(), curve.group.max()))
            draw_size_bar(figure, [left], curve.group, "$N$")
            left.set_title("\n".join(textwrap.wrap(label, 44, max_lines=2)))
            points = LawPoints(
                law.law,
                {label: np.array([cell.predicted for cell in law.cells])},
                {label: np.array([cell.measured for cell in law.cells])},
                law.mean_error,
            )
            title = f"{law.law}: mean error {law.mean_error:.3f}"
            draw_law_points(points, right, title=title, colours={label: BLUE}, markers={label: "o"})
    write_figure(figure, path)
    return len(fitted)
