"""Numbers from runs: grids of accuracy, fits of the collapse, comparisons with every law, and the luck of seeds."""

from recallscope.analysis.accuracy_grid import AccuracyGrid, Reduce
from recallscope.analysis.collapse import Fit, collapsed, fit_collapse, inverse_sigma
from recallscope.analysis.compare import CellError, Comparison, compare_law, compare_laws
from recallscope.analysis.designed import designed_rows
from recallscope.analysis.experiments import Experiment, experiments
from recallscope.analysis.predicted import Dimensions, dimensions, law_on_cells
from recallscope.analysis.seeds import SeedBin, convergence_by_best, convergence_grid

__all__ = [
    "AccuracyGrid",
    "CellError",
    "Comparison",
    "Dimensions",
    "Experiment",
    "Fit",
    "Reduce",
    "SeedBin",
    "collapsed",
    "compare_law",
    "compare_laws",
    "convergence_by_best",
    "convergence_grid",
    "designed_rows",
    "dimensions",
    "experiments",
    "fit_collapse",
    "inverse_sigma",
    "law_on_cells",
]
