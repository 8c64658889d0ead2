"""What is said of one group of runs: its grid, the fit of the collapse, every law against it, converged seeds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.collapse import FORMS, Fit, fit_collapse
from recallscope.analysis.compare import Comparison, compare_laws
from recallscope.analysis.seed_noise import interval
from recallscope.analysis.table import COMPARED, CONVERGED, Reduce, RunGroup, accuracies, recalls
from recallscope.theory.law import LAWS, Law


@dataclass(frozen=True, eq=False)
class GroupFit:
    """What `recallscope fit` says about one group of runs."""

    group: RunGroup
    grid: AccuracyGrid
    fits: tuple[Fit, ...]
    why_not: str  # why there is no fit
    laws: tuple[Comparison, ...]

    @property
    def converged(self) -> int:
        """Runs that left chance and reach the accuracy from which a seed counts as converged."""
        table = self.group.table
        return int(((accuracies(table) >= CONVERGED) & recalls(table)).sum())

    @property
    def sentences(self) -> list[str]:
        """What the group is, how many runs converged, and the fits."""
        runs = len(self.group.table)
        lines = [
            f"{self.group.label}  {runs} runs, {len(self.grid.measured)} cells, {self.grid.reduce} of seeds",
            f"{self.converged} of {runs} runs converged (accuracy >= {CONVERGED:g}, App. K.5, and above chance)",
        ]
        for fit in self.fits:
            width = " / sqrt(1 + v)" if fit.form == "two-moment" else ""
            lines += [
                f"Phi((x - b){width}):  a = {fit.a:.3f} {interval(*fit.a_interval, 3)}"
                f"  b = {fit.b:.3f} {interval(*fit.b_interval, 3)}",
                f"    mean error {fit.mean_error:.4f}, max {fit.max_error:.4f}"
                f"   (theory: b = {fit.b_typical:.3f}, printed {fit.b_printed:.3f})",
            ]
        return [*lines, f"no fit: {self.why_not}"] if self.why_not else lines

    @property
    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "label": self.group.label,
            "fields": self.group.fields,
            "axes": {name: list(values) for name, values in self.grid.axes.items()},
            "accuracy": self.grid.accuracy.tolist(),
            "counts": self.grid.counts.tolist(),
            "reduce": self.grid.reduce,
            "seeds": {"seeds": len(self.group.table), "converged": self.converged},
            "fits": [asdict(fit) for fit in self.fits],
            "no_fit_because": self.why_not or None,
            "laws": [
                {
                    "law": c.law, "mean_error": c.mean_error, "max_error": c.max_error, "bias": c.bias,
                    "left_out": c.left_out,
                    "cells": [{**e.fields, "measured": e.measured, "predicted": e.predicted} for e in c.cells],
                }
                for c in self.laws
            ],
        }  # fmt: skip


def fit_group(
    group: RunGroup,
    laws: Iterable[Law] = LAWS,
    *,
    reduce: Reduce = COMPARED,
    seed: int | None = None,
    bootstrap: int = 200,
) -> GroupFit:
    """Fit both forms of the collapse, and compare the laws, the closest first."""
    grid = AccuracyGrid.from_runs(group.table, group.axes, reduce=reduce, seed=seed)
    fits, why_not = list[Fit](), ""
    try:
        for form in FORMS:
            fits.append(fit_collapse(grid, np.random.default_rng(0), form=form, bootstrap=bootstrap))
    except ValueError as error:
        fits, why_not = [], str(error)
    return GroupFit(group, grid, tuple(fits), why_not, tuple(compare_laws(grid, laws)))
