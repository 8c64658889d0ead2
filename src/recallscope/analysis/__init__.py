"""Numbers from runs: grids of accuracy, fits of the collapse, comparisons with every law, and converged seeds."""

from recallscope.analysis.accuracy_grid import (
    AccuracyGrid,
    SeedBin,
    convergence_by_best,
    convergence_grid,
    law_grid,
    planned_grid,
)
from recallscope.analysis.collapse import CollapseCurve, Fit, collapse_curve, collapsed, fit_collapse, fit_with_draws
from recallscope.analysis.compare import (
    CellError,
    Comparison,
    LawPoints,
    compare_law,
    compare_laws,
    dimensions,
    law_on_cells,
    law_points,
)
from recallscope.analysis.group_fit import GroupFit, fit_group
from recallscope.analysis.rows import Reduce, RunGroup, group_runs
from recallscope.analysis.seed_noise import MeanGap, SeedNoise, interval, mean_gap, seed_noise

__all__ = [
    "AccuracyGrid",
    "CellError",
    "CollapseCurve",
    "Comparison",
    "Fit",
    "GroupFit",
    "LawPoints",
    "MeanGap",
    "Reduce",
    "RunGroup",
    "SeedBin",
    "SeedNoise",
    "collapse_curve",
    "collapsed",
    "compare_law",
    "compare_laws",
    "convergence_by_best",
    "convergence_grid",
    "dimensions",
    "fit_collapse",
    "fit_group",
    "fit_with_draws",
    "group_runs",
    "interval",
    "law_grid",
    "law_on_cells",
    "law_points",
    "mean_gap",
    "planned_grid",
    "seed_noise",
]
