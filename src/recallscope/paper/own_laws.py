"""How far architectures are from their own laws: the bare forms of the zoo; and full Mamba, whose law is chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.rows import Row, accuracies
from recallscope.paper.full_as_linear import chess_board
from recallscope.paper.law_table import LawEntry, entry_of
from recallscope.paper.paper_runs import PaperRuns
from recallscope.paper.zoo_forms import BARE, SIZES, Form, measured
from recallscope.specs import find_architecture
from recallscope.theory.law import Law, find_law


@dataclass(frozen=True)
class LawChoice:
    """One law of full Mamba: mean absolute errors on the half it may be chosen by and on the other; by regime."""

    law: str
    error_chosen: float
    error_checked: float
    regimes: Mapping[str, LawEntry]

    @property
    def error(self) -> float:
        """Over all cells."""
        entries = self.regimes.values()
        return sum(entry.mean_error * entry.cells for entry in entries) / sum(entry.cells for entry in entries)

    def __str__(self) -> str:
        return f"{self.law} {self.error_chosen:.4f} and {self.error_checked:.4f}"


def law_choices(chosen_in: str, grids: Mapping[str, Sequence[Row]], laws: Sequence[Law]) -> list[LawChoice]:
    """All laws, the best on one half of a regime's cells (as on a chess board) first. Rows are one per cell."""
    half = chess_board(grids[chosen_in])
    found = []
    for law in laws:
        errors = {regime: accuracies(cells) - law_on_cells(law, cells) for regime, cells in grids.items()}
        size = np.abs(errors[chosen_in])
        entries = {regime: entry_of(error) for regime, error in errors.items()}
        found.append(LawChoice(law.name, float(size[half].mean()), float(size[~half].mean()), entries))
    return sorted(found, key=lambda choice: choice.error_chosen)


def zoo_law_errors(
    runs: PaperRuns, what: str = "recall", forms: Sequence[Form] = BARE
) -> dict[str, dict[Form, NDArray[np.float64]]]:
    """Measured minus predicted, by law and bare form, in every cell that has runs of `what`; mean of seeds."""
    found: dict[str, dict[Form, NDArray[np.float64]]] = {}
    for form in forms:
        fields = form.fields | {"embed_dim": 1, "state_dim": 1}
        own = find_architecture(form.model["kind"]).model_validate(fields).own_law
        cells = measured(runs, what, form)
        if own and cells:
            words = [dict(zip(SIZES, cell, strict=True)) | {"task": "mqar"} for cell in cells]
            seen = np.array([one.mean for one in cells.values()])
            found.setdefault(own, {})[form] = seen - law_on_cells(find_law(own), words)
    return found
