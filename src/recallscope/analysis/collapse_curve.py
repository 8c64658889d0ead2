"""What a plot of accuracy against 1/sigma shows: the cells as points, the printed curve, and the fitted one.

Paper: Fig. 4 (`fig:scaling-laws-1d-dims`), Fig. 5 (`fig:multi-layer-scaling-laws`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from recallscope.analysis.accuracy_grid import Row, group_cells, reducer
from recallscope.analysis.collapse import FEWEST_CELLS, Fit, fit_with_draws
from recallscope.analysis.predicted import dimensions
from recallscope.theory.extremes import sqrt_two_log
from recallscope.theory.laws.paper import inv_sigma

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CollapseCurve:
    """Points (x, accuracy) per cell, and curves over `line`; x = sqrt(N D / (a N_f + N)) with the a that was given.

    `level` is the fit of b at this a, and `band` its 95 % band; `free` is the fit of a and b together. Both are None
    with fewer than four cells.
    """

    a: float
    x: Array
    accuracy: Array
    group: Array  # the size by which points are told apart
    group_word: str
    line: Array
    printed: Array  # Phi(x - b) with b as printed, sqrt(2 log V)
    printed_level: float
    fitted: Array | None
    band: tuple[Array, Array] | None
    level: Fit | None
    free: Fit | None


def collapse_curve(
    rows: Sequence[Row],
    noise_coeff: float,
    generator: np.random.Generator,
    *,
    axes: Sequence[str] = ("embed_dim", "state_dim"),
    group_word: str = "state_dim",
    bootstrap: int = 200,
) -> CollapseCurve:
    """The best of each cell's seeds against x, and Phi(x - b) with b as printed and as fitted.

    Paper: Rem 4.3 (`rem:practical-scaling-law`), Thm 4.6 (`thm:multi-layer-recall-scaling-laws`): N counts all layers.
    """
    cells = list(group_cells(rows, axes).values())
    problem = dimensions([members[0] for members in cells])
    best = reducer("best")
    x = inv_sigma(problem, a=noise_coeff)
    accuracy = np.array([best(np.array([row["test_accuracy"] for row in members])) for members in cells])
    line = np.linspace(0, max(6.0, 1.05 * float(x.max())), 200)
    printed_level = float(sqrt_two_log(problem.V[0]))
    level = free = fitted = band = None
    if len(cells) >= FEWEST_CELLS:
        level, draws = fit_with_draws(rows, generator, axes=axes, bootstrap=bootstrap, noise_coeff=noise_coeff)
        free = fit_with_draws(rows, generator, axes=axes, bootstrap=bootstrap)[0]
        fitted = np.asarray(ndtr(line - level.b))
        if len(draws):
            low, high = np.quantile(ndtr(line - draws[:, 1:]), (0.025, 0.975), axis=0)
            band = (low, high)
    return CollapseCurve(
        a=noise_coeff,
        x=x,
        accuracy=accuracy,
        group=np.array([float(members[0].get(group_word) or 1) for members in cells]),
        group_word=group_word,
        line=line,
        printed=np.asarray(ndtr(line - printed_level)),
        printed_level=printed_level,
        fitted=fitted,
        band=band,
        level=level,
        free=free,
    )
