"""How high the largest of V Gaussians climbs, and the chance that a signal stands above it.

Recall succeeds when the right logit tops all others (Eq. label `eq:p-succ-appx-large-Nf`), so every law is a
statement about a maximum. The paper replaces it by sqrt(2 log V) in print and by m_V in its released code; the
exact expectation and a two-moment closed form are as cheap and far closer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr

from recallscope.theory.problem import Array

# Trapezoid rules on analytic integrands that vanish at both ends converge exponentially; these steps give 1e-12.
_MAX_GRID = np.arange(-12.0, 16.0, 0.02)
_LOG_DENSITY = -0.5 * _MAX_GRID**2 - 0.5 * np.log(2 * np.pi)
_LOG_CDF = log_ndtr(_MAX_GRID)
NOISE_GRID = np.arange(-9.0, 9.0 + 1e-9, 0.06)
NOISE_WEIGHT = 0.06 * np.exp(-0.5 * NOISE_GRID**2) / np.sqrt(2 * np.pi)


def sqrt_two_log(vocab_size: ArrayLike) -> Array:
    """sqrt(2 log V), the level the printed laws use.

    Paper: Thm 4.2 (`thm:prob-scaling-law`).   Holds for: V so large that log log V / log V is small; at V = 1024 it
        lies 0.48 above the true median of the maximum.
    """
    return np.sqrt(2 * np.log(np.asarray(vocab_size, float)))


def typical_max(vocab_size: ArrayLike) -> Array:
    """m_V, the typical maximum of V standard normals to second order.

    Paper: Eq. label `app-eq:m-V`.   Holds for: V >> 1; 0.12 below the true median at V = 1024.
    """
    log_V = np.log(np.asarray(vocab_size, float))
    return np.sqrt(2 * log_V) * (1 - (np.log(log_V) + np.log(4 * np.pi)) / (4 * log_V))


def max_moments(count: ArrayLike) -> tuple[Array, Array]:
    """Mean and variance of the largest of `count` independent standard normals, exact to 1e-10.

    Paper: the quantity `app-eq:m-V` approximates.
    """
    n = np.asarray(count, float)[..., None]
    density = np.exp(np.log(n) + _LOG_DENSITY + (n - 1) * _LOG_CDF) * 0.02
    mean = (density * _MAX_GRID).sum(-1)
    return mean, (density * (_MAX_GRID - mean[..., None]) ** 2).sum(-1)


def success_integral(inv_sigma: ArrayLike, competitors: ArrayLike) -> Array:
    """E[Phi(Z + x)^n]: the chance that a logit with mean x tops n others, all of unit noise (P1).

    Paper: Eq. label `eq:p-succ-appx-large-Nf`, before any approximation of the maximum.
    """
    x, n = (np.asarray(a, float)[..., None] for a in (inv_sigma, competitors))
    return (np.exp(n * log_ndtr(NOISE_GRID + x)) * NOISE_WEIGHT).sum(-1)


def two_moment_law(inv_sigma: ArrayLike, competitors: ArrayLike) -> Array:
    """Phi((x - m_n) / sqrt(1 + v_n)): the success integral with the maximum taken as normal (P2).

    Departs: the paper drops the variance v_n of the maximum and approximates its mean m_n; keeping both leaves an
        error of about 0.002.
    """
    mean, variance = max_moments(competitors)
    return ndtr((np.asarray(inv_sigma, float) - mean) / np.sqrt(1 + variance))
