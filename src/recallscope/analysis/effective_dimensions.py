"""A full Mamba with (D, N) recalls like a linear one with other dimensions: which? Chosen on half the cells, checked on
the other half.

Paper: Fig. 4 (`fig:scaling-laws-1d-dims`), where the full model is given half the noise coefficient instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from recallscope.analysis.accuracy_grid import Row
from recallscope.theory.laws.sharing import sharing_law

Array = NDArray[np.float64]
RULES = {  # what one factor c may do to (D, N)
    "(c D, N)": (1.0, 0.0),
    "(D, c N)": (0.0, 1.0),
    "(c D, c N)": (1.0, 1.0),
}
LARGEST = 4.0


@dataclass(frozen=True)
class ScaledRule:
    """One rule with its factor: fitted on the chosen half, mean absolute errors on that half and on the other."""

    rule: str
    factor: float
    error_chosen: float
    error_checked: float


@dataclass(frozen=True)
class EffectiveDimensions:
    """All rules, the best on the chosen half first; the factor of the best on all cells; errors without any rule."""

    rules: tuple[ScaledRule, ...]
    factor: float
    mean_error: float
    max_error: float
    unscaled: tuple[float, float]  # errors of the linear law itself on the two halves
    cells: int


def effective_dimensions(cells: Sequence[Row]) -> EffectiveDimensions:
    """Fit a factor per rule to every second cell (in the order of D, then N, as on a chess board), check on the rest.

    Rows are one per cell. Law: trained-sharing.
    """
    ordered = sorted(cells, key=lambda cell: (cell["embed_dim"], cell["state_dim"]))
    Ds, Ns = (sorted({cell[name] for cell in ordered}) for name in ("embed_dim", "state_dim"))
    chosen = np.array([(Ds.index(c["embed_dim"]) + Ns.index(c["state_dim"])) % 2 == 0 for c in ordered])
    if chosen.sum() < 2 or (~chosen).sum() < 2:
        raise ValueError(f"{len(ordered)} cells: at least two are needed to choose on and two to check on.")
    found = []
    for rule in RULES:
        factor = _fit(rule, [cell for cell, mine in zip(ordered, chosen, strict=True) if mine])
        errors = np.abs(scaled_errors(rule, factor, ordered))
        found.append(ScaledRule(rule, factor, float(errors[chosen].mean()), float(errors[~chosen].mean())))
    found.sort(key=lambda rule: rule.error_chosen)
    factor = _fit(found[0].rule, ordered)
    errors = np.abs(scaled_errors(found[0].rule, factor, ordered))
    plain = np.abs(scaled_errors(found[0].rule, 1.0, ordered))
    halves = (float(plain[chosen].mean()), float(plain[~chosen].mean()))
    return EffectiveDimensions(tuple(found), factor, float(errors.mean()), float(errors.max()), halves, len(ordered))


def scaled_errors(rule: str, factor: float, cells: Sequence[Row]) -> Array:
    """Measured minus predicted."""
    in_D, in_N = RULES[rule]
    D, N, V, N_f, L, measured = (
        np.array([cell[name] for cell in cells], float)
        for name in ("embed_dim", "state_dim", "vocab_size", "num_facts", "length", "test_accuracy")
    )
    predicted = sharing_law(
        vocab_size=V, num_facts=N_f, embed_dim=D * factor**in_D, state_dim=N * factor**in_N, task="mqar", length=L
    )
    return measured - predicted


def _fit(rule: str, cells: Sequence[Row]) -> float:
    best = minimize_scalar(
        lambda log_c: float(np.mean(scaled_errors(rule, float(np.exp(log_c)), cells) ** 2)),
        bounds=(-np.log(LARGEST), np.log(LARGEST)),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return float(np.exp(best.x))
