"""Every law against every group of measured cells: how far each is off, where, and on how many cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame
from scipy.special import stdtrit

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.collapse import collapsed, fit_collapse
from recallscope.analysis.compare import dimensions, law_on_cells
from recallscope.analysis.seed_noise import interval
from recallscope.analysis.table import COMPARED, accuracies, cell_fields, cells_of, rows_of
from recallscope.studies.experiment import Misses, experiments
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.law import find_law
from recallscope.theory.laws.heads import sharing_heads_law

SHOWN_LAWS = ("unified", "unified-mv", "trained", "trained-sharing")
COUNTED = "trained-sharing, channels counted"
FITTED_CURVE = "Phi(x - b), a and b fitted"
Array = NDArray[np.float64]


@dataclass(frozen=True)
class LawEntry:
    """One law on one group of cells."""

    mean_error: float  # of |measured - predicted|
    max_error: float
    bias: float  # mean of measured - predicted
    cells: int


def entry_of(errors: Array) -> LawEntry:
    """The errors of a law, measured minus predicted; nan where it does not speak about a cell."""
    sound = errors[~np.isnan(errors)]
    size = np.abs(sound)
    return LawEntry(float(size.mean()), float(size.max()), float(sound.mean()), len(sound))


def mae(errors: Array) -> str:
    """Mean absolute error with its 95% interval over cells, and the largest, as text."""
    size = np.abs(errors[~np.isnan(errors)])
    half = stdtrit(len(size) - 1, 0.975) * size.std(ddof=1) / len(size) ** 0.5 if len(size) > 1 else np.nan
    return f"{size.mean():.3f} {interval(max(size.mean() - half, 0), size.mean() + half, 3)}, at most {size.max():.3f}"


@dataclass(frozen=True)
class LawTable:
    """Laws by groups of cells; a law that does not speak about a group has no entry there."""

    groups: tuple[str, ...]
    laws: tuple[str, ...]
    entries: Mapping[tuple[str, str], LawEntry]  # (law, group)
    notes: tuple[str, ...] = ()  # plain sentences, such as where a law fails

    def cells(self, group: str) -> int:
        """Cells of a group, as far as any law speaks about them."""
        return max((entry.cells for (_, name), entry in self.entries.items() if name == group), default=0)

    def best(self, group: str) -> tuple[str, ...]:
        """The law of least mean error, and those equal to it.

        Only laws that speak about the most cells compete, and none with constants fitted to these very cells.
        """
        entries = {
            law: entry
            for law in self.laws
            if law != FITTED_CURVE
            and (entry := self.entries.get((law, group))) is not None
            and entry.cells
            and isfinite(entry.mean_error)
        }
        most = max((entry.cells for entry in entries.values()), default=0)
        rivals = {law: entry.mean_error for law, entry in entries.items() if entry.cells == most}
        least = min(rivals.values(), default=0.0)
        return tuple(law for law, error in rivals.items() if error == least)


def law_table(runs: PaperRuns) -> LawTable:
    """All laws for trained models on all groups of cells that have runs; mean of seeds."""
    groups = {group: rows for one in experiments() for group, rows in one.cells_for_laws(runs).items() if len(rows)}
    entries: dict[tuple[str, str], LawEntry] = {}
    misses: Misses = {}
    for group, rows in groups.items():
        cells = cells_of(rows)
        measured = accuracies(cells)
        predicted: dict[str, Array | None] = {name: law_on_cells(find_law(name), cells) for name in SHOWN_LAWS}
        predicted |= {COUNTED: counted(cells), FITTED_CURVE: _fitted_curve(rows)}
        for law, p in predicted.items():
            if p is None:
                continue
            misses.setdefault(group, {})[law] = list(zip(rows_of(cells), (measured - p).tolist(), strict=True))
            if not np.isnan(p).all():
                entries[law, group] = entry_of(measured - p)
    speaking = {law for law, _ in entries}
    laws = tuple(law for law in (*SHOWN_LAWS, COUNTED, FITTED_CURVE) if law in speaking)
    notes = tuple(note for one in experiments() for found in one.call("law_notes", runs, misses) for note in found)
    return LawTable(tuple(groups), laws, entries, notes)


def counted(cells: DataFrame) -> Array | None:
    """What `sharing_heads_law` says of many-headed cells; other cells have no such law.

    Paper: takes the place of Thm 4.7 (`thm:multi-head-recall`).
    """
    if "head_pattern" not in cells or cells["head_pattern"].isna().any():
        return None
    columns = ["head_pattern", "num_heads", "vocab_size", "num_facts", "embed_dim", "state_dim", "task", "expand"]
    return np.array([float(sharing_heads_law(**cell)) for cell in rows_of(cells[columns])])


def _fitted_curve(rows: DataFrame) -> Array | None:
    """a and b fitted to the group itself; groups of several vocabularies or tasks have no such curve."""
    if len(rows[["vocab_size", "task"]].drop_duplicates()) > 1:
        return None
    grid = AccuracyGrid.from_runs(rows, cell_fields(rows), reduce=COMPARED)
    try:
        fit = fit_collapse(grid, np.random.default_rng(0), bootstrap=0)
    except ValueError:
        return None
    return collapsed(dimensions(grid.cells), fit.a, fit.b, "phi")


def where_it_fails(law: str, cells: Sequence[tuple[Mapping[str, Any], float]]) -> str:
    """How the error of a law (measured minus predicted, nan where it does not apply) goes with N / D, and its worst."""
    sound = [(cell, error) for cell, error in cells if error == error]
    if not sound:
        return f"{law}: applies to no setting of the linear grids."
    means = []
    for name, low, high in (("N <= D/8", 0, 1 / 8), ("D/8 < N <= D/2", 1 / 8, 1 / 2), ("N > D/2", 1 / 2, np.inf)):
        errors = [error for cell, error in sound if low < cell["state_dim"] / cell["embed_dim"] <= high]
        means += [f"{np.mean(errors):+.3f} for {name}"] if errors else []
    worst, error = max(sound, key=lambda item: abs(item[1]))
    return (
        f"{law}: measured minus predicted is {', '.join(means)} on average; worst {error:+.3f} at "
        f"(D, N) = ({worst['embed_dim']}, {worst['state_dim']}), {str(worst['task']).upper()}, "
        f"V = {worst['vocab_size']}, N_f = {worst['num_facts']}."
    )
