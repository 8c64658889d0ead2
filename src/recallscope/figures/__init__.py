"""Figures only draw: data in, Axes or Figure out. Needs matplotlib (`pip install 'recallscope[figures]'`).

Names are loaded when first used, so that a module may define figures where matplotlib is not installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from recallscope.figures.accuracy_panels import draw_bar, draw_grid, draw_missing
    from recallscope.figures.curve_panels import draw_collapse, draw_convergence, draw_law_points, draw_size_bar, shades
    from recallscope.figures.mechanism import (
        DIAGONALS,
        DOTTED,
        FRAMED,
        RINGS,
        attention_figure,
        copy_shift_figure,
        draw_attention_pair,
        draw_copy_and_shift,
        draw_operators,
        draw_tables,
        fill_figure,
        hash_table_figure,
        inside_figures,
        operators_figure,
    )
    from recallscope.figures.panels import (
        draw_attention,
        draw_curve,
        draw_excerpt,
        draw_matrix,
        draw_table,
        mark_classes,
    )
    from recallscope.figures.style import (
        BLACK,
        BLUE,
        COLUMN,
        GREEN,
        GUESS,
        PAGE,
        VERMILION,
        figure_style,
        new_figure,
        save_figure,
        small_picture,
    )

__all__ = [
    "BLACK",
    "BLUE",
    "COLUMN",
    "DIAGONALS",
    "DOTTED",
    "FRAMED",
    "GREEN",
    "GUESS",
    "PAGE",
    "RINGS",
    "VERMILION",
    "attention_figure",
    "copy_shift_figure",
    "draw_attention",
    "draw_attention_pair",
    "draw_bar",
    "draw_collapse",
    "draw_convergence",
    "draw_copy_and_shift",
    "draw_curve",
    "draw_excerpt",
    "draw_grid",
    "draw_law_points",
    "draw_matrix",
    "draw_missing",
    "draw_operators",
    "draw_size_bar",
    "draw_table",
    "draw_tables",
    "figure_style",
    "fill_figure",
    "hash_table_figure",
    "inside_figures",
    "mark_classes",
    "new_figure",
    "operators_figure",
    "save_figure",
    "shades",
    "small_picture",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in ("style", "accuracy_panels", "curve_panels", "panels", "mechanism"):
            names = vars(import_module(f"{__name__}.{module}"))
            if name in names:
                return names[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
