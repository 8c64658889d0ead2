"""Figures only draw: data in, Axes or Figure out. Needs matplotlib (`pip install 'recallscope[figures]'`)."""

from recallscope.figures.mechanism import (
    attention_figure,
    copy_shift_figure,
    fill_figure,
    hash_table_figure,
    operators_figure,
)
from recallscope.figures.panels import draw_attention, draw_curve, draw_excerpt, draw_matrix, draw_table, mark_classes
from recallscope.figures.style import figure_style, save_figure

__all__ = [
    "attention_figure",
    "copy_shift_figure",
    "draw_attention",
    "draw_curve",
    "draw_excerpt",
    "draw_matrix",
    "draw_table",
    "figure_style",
    "fill_figure",
    "hash_table_figure",
    "mark_classes",
    "operators_figure",
    "save_figure",
]
