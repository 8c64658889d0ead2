"""Numbers from runs: grids of accuracy, fits of the collapse, comparisons with every law, and the luck of seeds."""

from recallscope.analysis.accuracy_grid import AccuracyGrid, Reduce
from recallscope.analysis.collapse import Fit, collapsed, fit_collapse, fit_with_draws
from recallscope.analysis.collapse_curve import CollapseCurve, collapse_curve
from recallscope.analysis.compare import CellError, Comparison, compare_law, compare_laws
from recallscope.analysis.designed import designed_rows
from recallscope.analysis.experiments import Experiment, experiments
from recallscope.analysis.ladder import Rung, ladder, rung_of
from recallscope.analysis.law_points import LawPoints, law_points
from recallscope.analysis.planned import law_grid, planned_grid
from recallscope.analysis.predicted import dimensions, law_on_cells
from recallscope.analysis.seeds import SeedBin, convergence_by_best, convergence_grid
from recallscope.analysis.vocabulary_slopes import VocabularySlope, vocabulary_slopes

__all__ = [
    "AccuracyGrid",
    "CellError",
    "CollapseCurve",
    "Comparison",
    "Experiment",
    "Fit",
    "LawPoints",
    "Reduce",
    "Rung",
    "SeedBin",
    "VocabularySlope",
    "collapse_curve",
    "collapsed",
    "compare_law",
    "compare_laws",
    "convergence_by_best",
    "convergence_grid",
    "designed_rows",
    "dimensions",
    "experiments",
    "fit_collapse",
    "fit_with_draws",
    "ladder",
    "law_grid",
    "law_on_cells",
    "law_points",
    "planned_grid",
    "rung_of",
    "vocabulary_slopes",
]
