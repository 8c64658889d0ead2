"""Full Mamba beside the linear model: is its noise coefficient a half, or is it a linear model of other dimensions?

Paper: Fig. 4 (`fig:scaling-laws-1d-dims`), where a of the full model is said to be half of the linear one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, minimize_scalar
from scipy.special import ndtr

from recallscope.analysis.collapse import FEWEST_CELLS
from recallscope.analysis.compare import dimensions
from recallscope.analysis.rows import Row, group_cells
from recallscope.theory.extremes import typical_max
from recallscope.theory.laws.paper import inv_sigma
from recallscope.theory.laws.sharing import sharing_law
from recallscope.theory.problem import Problem

Array = NDArray[np.float64]
Ends = tuple[float, float]
RULES = {  # what one factor c may do to (D, N)
    "(c D, N)": (1.0, 0.0),
    "(D, c N)": (0.0, 1.0),
    "(c D, c N)": (1.0, 1.0),
}
LARGEST = 4.0
_CELL = ("task", "vocab_size", "num_facts", "length", "embed_dim", "state_dim")


@dataclass(frozen=True)
class Ratio:
    """a of the first over a of the second: each with its own b, and with one b for both; 95 % intervals."""

    value: float
    interval: Ends
    shared_b: float
    shared_b_interval: Ends
    cells: int


def coefficient_ratio(
    first: Sequence[Row], second: Sequence[Row], generator: np.random.Generator, *, bootstrap: int = 400
) -> Ratio:
    """Fit Phi(x - b) to both kinds on the cells they share, best of seeds; intervals from resampling cells."""
    ours, theirs = group_cells(first, _CELL), group_cells(second, _CELL)
    shared = [cell for cell in ours if cell in theirs]
    if len(shared) < FEWEST_CELLS:
        raise ValueError(f"{len(shared)} cells in common: at least {FEWEST_CELLS} are needed.")
    problem = dimensions([ours[cell][0] for cell in shared])
    best = [
        np.array([max(row["test_accuracy"] for row in group[cell]) for cell in shared], float)
        for group in (ours, theirs)
    ]
    value, one_b = _ratios(problem, best)
    draws = []
    for _ in range(bootstrap):
        chosen = generator.integers(len(shared), size=len(shared))
        draws.append(_ratios(problem.take(chosen), [accuracy[chosen] for accuracy in best]))
    low, high = np.quantile(np.array(draws), (0.025, 0.975), axis=0)
    return Ratio(value, (float(low[0]), float(high[0])), one_b, (float(low[1]), float(high[1])), len(shared))


def _ratios(problem: Problem, accuracies: Sequence[Array]) -> tuple[float, float]:
    """Ratio of the a's with a b each, and with one b."""
    b = float(typical_max(problem.V[0]))

    def miss(log_a: float, level: float, measured: Array) -> Array:
        return np.asarray(ndtr(inv_sigma(problem, a=float(np.exp(np.clip(log_a, -7, 5)))) - level)) - measured

    apart = [least_squares(lambda v, y=y: miss(v[0], v[1], y), (0.0, b), method="lm").x[0] for y in accuracies]
    first, second = accuracies
    together = least_squares(
        lambda v: np.concatenate((miss(v[0], v[2], first), miss(v[1], v[2], second))), (0.0, 0.0, b), method="lm"
    ).x
    clip = lambda difference: float(np.exp(np.clip(difference, -12, 12)))  # noqa: E731
    return clip(apart[0] - apart[1]), clip(together[0] - together[1])


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
    plain = np.abs(scaled_errors(found[0].rule, 1.0, ordered))
    halves = (float(plain[chosen].mean()), float(plain[~chosen].mean()))
    return EffectiveDimensions(tuple(found), factor, halves, len(ordered))


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
