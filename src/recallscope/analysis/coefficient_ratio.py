"""Is the noise coefficient a of one kind of model a fraction of another's? Both fitted on the same cells.

Paper: Fig. 4 (`fig:scaling-laws-1d-dims`), where a of the full model is said to be half of the linear one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import ndtr

from recallscope.analysis.accuracy_grid import Row, group_cells
from recallscope.analysis.collapse import FEWEST_CELLS
from recallscope.analysis.predicted import dimensions
from recallscope.theory.extremes import typical_max
from recallscope.theory.laws.paper import inv_sigma
from recallscope.theory.problem import Problem

_CELL = ("task", "vocab_size", "num_facts", "length", "embed_dim", "state_dim")
Ends = tuple[float, float]


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


def _ratios(problem: Problem, accuracies: Sequence[NDArray[np.float64]]) -> tuple[float, float]:
    """Ratio of the a's with a b each, and with one b."""
    b = float(typical_max(problem.V[0]))

    def miss(log_a: float, level: float, measured: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(ndtr(inv_sigma(problem, a=float(np.exp(np.clip(log_a, -7, 5)))) - level)) - measured

    apart = [least_squares(lambda v, y=y: miss(v[0], v[1], y), (0.0, b), method="lm").x[0] for y in accuracies]
    first, second = accuracies
    together = least_squares(
        lambda v: np.concatenate((miss(v[0], v[2], first), miss(v[1], v[2], second))), (0.0, 0.0, b), method="lm"
    ).x
    clip = lambda difference: float(np.exp(np.clip(difference, -12, 12)))  # noqa: E731
    return clip(apart[0] - apart[1]), clip(together[0] - together[1])
