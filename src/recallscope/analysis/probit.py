"""A line through few accuracies on the normal scale, and where it crosses a target, with an interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

SEED_SCATTER = 0.005  # assumed standard deviation of trained accuracy between seeds; linear models show 0.001 to 0.003
QUANTILE = 1.96


@dataclass(frozen=True, eq=False)
class ProbitFit:
    """accuracy = Phi(intercept + slope x), and the covariance of the two."""

    intercept: float
    slope: float
    covariance: NDArray[np.float64]

    def accuracy(self, x: float) -> float:
        """The fitted curve."""
        return float(ndtr(self.intercept + self.slope * x))

    def crossing(self, target: float) -> tuple[float, tuple[float, float]]:
        """x at which the curve reaches the target, and its 95% interval to first order."""
        x = (float(ndtri(target)) - self.intercept) / self.slope
        gradient = np.array([-1.0, -x]) / self.slope
        spread = QUANTILE * float(np.sqrt(gradient @ self.covariance @ gradient))
        return x, (x - spread, x + spread)


def fit_probit(
    x: Sequence[float], accuracy: Sequence[float], queries: Sequence[int], *, slope: tuple[float, float]
) -> ProbitFit:
    """Weighted least squares of the accuracies' normal quantiles on x; one point is enough.

    `slope` is what is expected of it, mean and standard deviation, and counts as one more observation. An accuracy is
    uncertain by the number of its queries and by `SEED_SCATTER`; if the points scatter more around the line than that,
    the covariance grows accordingly. The slope is kept above a tenth of what is expected: accuracy rises with x.
    """
    p, n = np.asarray(accuracy, float), np.asarray(queries, float)
    p = np.clip(p, 0.5 / n, 1 - 0.5 / n)
    z = ndtri(p)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    weight = density**2 / (p * (1 - p) / n + SEED_SCATTER**2)
    design = np.column_stack([np.ones(len(p)), np.asarray(x, float)])
    precision = design.T @ (weight[:, None] * design) + np.diag([1e-12, slope[1] ** -2])
    covariance = np.linalg.inv(precision)
    best = covariance @ (design.T @ (weight * z) + np.array([0.0, slope[0] * slope[1] ** -2]))
    if best[1] < slope[0] / 10:
        best = np.array([np.average(z - slope[0] / 10 * design[:, 1], weights=weight), slope[0] / 10])
    freedom = len(p) - 1
    excess = float(weight @ (z - design @ best) ** 2) / freedom if freedom else 1.0
    return ProbitFit(float(best[0]), float(best[1]), covariance * max(1.0, excess))
