"""Which law is nearest to a group of cells."""

from __future__ import annotations

from math import isfinite

from recallscope.analysis.law_table import FITTED_CURVE, FITTED_FAMILY, LawEntry, LawTable

FITTED = (FITTED_CURVE, FITTED_FAMILY)
CAPTION = (
    "Mean (and largest) distance of measured and predicted accuracy, and the mean of measured minus predicted (bias). "
    "Bold: the nearest law of the row, among those on the most of its cells with no constant fitted to them"
)


def best_laws(table: LawTable, group: str) -> tuple[str, ...]:
    """The law of least mean error, and those equal to it.

    Only laws that speak about the most cells compete, and none with constants fitted to these very cells.
    """
    entries = {
        law: entry
        for law in table.laws
        if law not in FITTED
        and (entry := table.entries.get((law, group))) is not None
        and entry.cells
        and isfinite(entry.mean_error)
    }
    most = max((entry.cells for entry in entries.values()), default=0)
    rivals = {law: entry.mean_error for law, entry in entries.items() if entry.cells == most}
    least = min(rivals.values(), default=0.0)
    return tuple(law for law, error in rivals.items() if error == least)


def most_cells(table: LawTable, group: str) -> int:
    """Cells of a group, as far as any law speaks about them."""
    return max((entry.cells for (_, name), entry in table.entries.items() if name == group), default=0)


def cells_words(count: int) -> str:
    """So many cells."""
    return f"{count} {'cell' if count == 1 else 'cells'}"


def error_words(entry: LawEntry, of: int) -> tuple[str, str]:
    """Mean and largest error; bias, and cells if they are not all."""
    some = f", {entry.cells} of {of} cells" if entry.cells != of else ""
    return (
        f"{_number(entry.mean_error, '.4f')} ({_number(entry.max_error, '.3f')})",
        f"bias {_number(entry.bias, '+.4f')}{some}",
    )


def _number(value: float, form: str) -> str:
    return format(value, form) if isfinite(value) else "-"
