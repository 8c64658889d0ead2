"""One row per cell: the best of its seeds, as the paper reports it.

Paper: App. K.5 (`app-subsec:seeds`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recallscope.analysis.accuracy_grid import Row, group_cells
from recallscope.analysis.collapse import CELL_WORDS

_CELL = (*CELL_WORDS, "num_layers", "residual", "num_heads", "head_pattern", "key_repeats", "batch_size")


def cell_words(rows: Sequence[Row]) -> list[str]:
    """The words that make a cell, as far as all rows have them."""
    return [name for name in _CELL if all(name in row for row in rows)]


def best_cells(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The first row of every cell with the best accuracy of its seeds, and how many those are."""
    return [
        {**members[0], "test_accuracy": max(row["test_accuracy"] for row in members), "seeds": len(members)}
        for members in group_cells(rows, cell_words(rows)).values()
    ]
