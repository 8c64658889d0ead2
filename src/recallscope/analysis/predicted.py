"""Laws on cells: from the words of a run to the arguments of a law."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recallscope.theory.heads import head_bounds


class Dimensions(NamedTuple):
    """What recall depends on, as arrays over cells; several heads are already brought down to one (Thm 4.7)."""

    V: NDArray[np.float64]
    N_f: NDArray[np.float64]
    D: NDArray[np.float64]
    N: NDArray[np.float64]  # per layer
    layers: NDArray[np.float64]
    L: NDArray[np.float64]


def dimensions(cells: Sequence[Mapping[str, Any]]) -> Dimensions:
    """The paper's letters of some cells. Where heads only bound recall (MHA), the lower bound is taken.

    Paper: Thm 4.7 (`thm:multi-head-recall`).
    """
    V, N_f, D, N, layers = (
        np.array([cell.get(name) or default for cell in cells], float)
        for name, default in (
            ("vocab_size", np.nan),
            ("num_facts", np.nan),
            ("embed_dim", np.nan),
            ("state_dim", np.nan),
            ("num_layers", 1),
        )
    )
    for index, cell in enumerate(cells):
        if cell.get("head_pattern"):
            lower = head_bounds(cell["head_pattern"], D[index], N[index], cell.get("num_heads") or 1).lower
            D[index], N[index] = float(lower.embed_dim), float(lower.state_dim)
    L = np.array(
        [
            cell.get("length") or (2 * f + 1 if cell.get("task") == "ar" else 4 * f)
            for cell, f in zip(cells, N_f, strict=True)
        ]
    )
    return Dimensions(V, N_f, D, N, layers, L.astype(float))


def law_on_cells(law: Callable[..., Any], cells: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    """The law's probability for each cell, nan where it does not apply; cells of one kind of task in one call."""
    p = np.full(len(cells), np.nan)
    letters = dimensions(cells)
    tasks = np.array([str(cell.get("task", "mqar")) for cell in cells])
    for task in ("ar", "mqar"):
        here = np.flatnonzero(tasks == task)
        if here.size:
            p[here] = _called(law, letters, here, task)
    return p


def _called(law: Callable[..., Any], letters: Dimensions, here: NDArray[np.int64], task: str) -> NDArray[np.float64]:
    """All at once; if the law refuses that, cell by cell, so that one cell it cannot take does not cost the others."""
    V, N_f, D, N, layers, L = (array[here] for array in letters)
    try:
        with np.errstate(all="ignore"):
            return np.asarray(
                law(
                    vocab_size=V, num_facts=N_f, embed_dim=D, state_dim=N, num_layers=layers,
                    task=task, length=L if task == "mqar" else None,
                ),
                float,
            )  # fmt: skip
    except ValueError:
        if here.size == 1:
            return np.array([np.nan])
        return np.concatenate([_called(law, letters, here[[index]], task) for index in range(here.size)])
