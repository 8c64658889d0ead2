"""Least squares for many small problems of one shape at once, such as all resamplings of a fit."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
MOST_STEPS = 200


def many_least_squares(
    residual: Callable[[Array], tuple[Array, Array]], start: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """Levenberg and Marquardt's method from each start (problems, parameters), between bounds.

    `residual` gives residuals (problems, n) and their derivatives (problems, n, parameters). Returns parameters and
    sums of squares; a parameter that wants to pass a bound stays exactly on it.
    """
    values = np.clip(start, low, high)
    misses, slopes = residual(values)
    cost = (misses**2).sum(1)
    damping = np.full(len(values), 1e-3)
    for _ in range(MOST_STEPS):
        downhill = -np.einsum("kni,kn->ki", slopes, misses)
        curvature = np.einsum("kni,knj->kij", slopes, slopes)
        held = ((values <= low) & (downhill < 0)) | ((values >= high) & (downhill > 0))
        downhill = np.where(held, 0.0, downhill)
        curvature = np.where(held[:, :, None] | held[:, None, :], 0.0, curvature)
        diagonal = np.einsum("kii->ki", curvature)
        diagonal += damping[:, None] * diagonal + 1e-12 + held
        tried = np.clip(values + np.linalg.solve(curvature, downhill[..., None])[..., 0], low, high)
        new_misses, new_slopes = residual(tried)
        new_cost = (new_misses**2).sum(1)
        better = new_cost <= cost
        settled = (better & (cost - new_cost <= 1e-12 * cost)) | (damping > 1e10)
        values, misses, cost = (
            np.where(better[:, None], tried, values),
            np.where(better[:, None], new_misses, misses),
            np.where(better, new_cost, cost),
        )
        slopes = np.where(better[:, None, None], new_slopes, slopes)
        damping = np.where(better, np.maximum(damping / 10, 1e-12), damping * 10)
        if settled.all():
            break
    return values, cost
