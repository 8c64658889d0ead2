"""Laws on cells: from the words of some runs to a Problem, and to what a law says of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recallscope.theory.law import Law
from recallscope.theory.problem import FIELDS, Problem
from recallscope.theory.reduction import one_head

Cell = Mapping[str, Any]


def dimensions(cells: Sequence[Cell]) -> Problem:
    """The sizes of some cells, of any task and length, as one Problem; several heads are brought down to one.

    Where heads only bound recall (MHA), the lower bound is taken.

    Paper: Thm 4.7 (`thm:multi-head-recall`).
    """
    singles = [one_head(Problem.from_words({**cell, "task": "mqar", "length": None})) for cell in cells]
    letters = {"vocab_size": "V", "num_facts": "N_f", "embed_dim": "D", "state_dim": "N", "num_layers": "Lambda"}
    return Problem.from_words(
        {name: np.array([getattr(one, letter) for one in singles]) for name, letter in letters.items()}
    )


def law_on_cells(law: Callable[..., Any], cells: Sequence[Cell]) -> NDArray[np.float64]:
    """The law's probability for each cell, nan where it does not apply; cells of one kind in one call."""
    p = np.full(len(cells), np.nan)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, cell in enumerate(cells):
        given = tuple(name for name in FIELDS if cell.get(name) is not None)
        groups.setdefault((cell.get("task"), cell.get("head_pattern"), given), []).append(index)
    for (_, _, given), here in groups.items():
        p[here] = _called(law, [cells[index] for index in here], given)
    return p


def _called(law: Callable[..., Any], cells: Sequence[Cell], given: Sequence[str]) -> NDArray[np.float64]:
    """All at once; if the law refuses that, cell by cell, so that one cell it cannot take does not cost the others."""
    words = {name: np.array([cell[name] for cell in cells]) for name in given}
    words |= {name: cells[0][name] for name in ("task", "head_pattern") if name in given}
    try:
        problem = Problem.from_words(words)
        with np.errstate(all="ignore"):
            p = law(problem) if isinstance(law, Law) else law(**one_head(problem).words)
        return np.asarray(p, float)
    except ValueError:
        if len(cells) == 1:
            return np.array([np.nan])
        return np.concatenate([_called(law, [cell], given) for cell in cells])
