"""Figures only draw: data in, Axes or Figure out. Needs matplotlib (`pip install 'recallscope[figures]'`)."""

from recallscope.figures.accuracy_panels import draw_grid, draw_missing
from recallscope.figures.curve_panels import draw_collapse, draw_law_points
from recallscope.figures.mechanism import (
    attention_figure,
    copy_shift_figure,
    fill_figure,
    hash_table_figure,
    operators_figure,
)
from recallscope.figures.panels import draw_attention, draw_curve, draw_excerpt, draw_matrix, draw_table, mark_classes
from recallscope.figures.paper_figures import FIGURES, PaperFigure, find_figures
from recallscope.figures.sources import NoRunsError
from recallscope.figures.style import figure_style, save_figure

__all__ = [
    "FIGURES",
    "NoRunsError",
    "PaperFigure",
    "attention_figure",
    "copy_shift_figure",
    "draw_attention",
    "draw_collapse",
    "draw_curve",
    "draw_excerpt",
    "draw_grid",
    "draw_law_points",
    "draw_matrix",
    "draw_missing",
    "draw_table",
    "figure_style",
    "fill_figure",
    "find_figures",
    "hash_table_figure",
    "mark_classes",
    "operators_figure",
    "save_figure",
]
