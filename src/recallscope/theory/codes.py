"""How uncorrelated code words can be: bounds of the second and of the fourth order, and codes that reach them.

n unit vectors in R^d cannot all be orthogonal if n > d. Over all n² pairs, a vector with itself among them, the mean of
(x·y)² is at least 1/d (Welch), and that of (x·y)⁴ at least 3 / (d (d + 2)) (Sidelnikov). Tight frames reach the first;
the second limits how rare close neighbours can be. Random tight frames have the kurtosis of a sphere, 3 d* / (d* + 2);
trained keys lie between that and the bound: they repel each other, and where recall fails on the nearest key this
counts (`results/theory/repeated_keys.md`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from recallscope.theory.problem import Array

FRAME_ROUNDS, REPEL_STEPS = 60, 400


def least_square(dim: ArrayLike, count: ArrayLike) -> Array:
    """Least mean of (x·y)² over pairs of different ones among `count` unit vectors; 0 if they fit orthogonally."""
    d, n = np.asarray(dim, float), np.asarray(count, float)
    return np.maximum(0, (n / d - 1) / (n - 1))


def least_kurtosis(dim: ArrayLike, count: ArrayLike) -> Array:
    """Least kurtosis (mean fourth power over mean square²) of x·y over pairs of different words of a tight frame.

    At least 1, as for any numbers. With many more words than d² it is 3 d / (d + 2), that of a sphere.
    """
    d, n = np.asarray(dim, float), np.asarray(count, float)
    fourth = (3 * n / (d * (d + 2)) - 1) / (n - 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.maximum(1, fourth / least_square(d, n) ** 2)


def tight_frame(dim: int, count: int, generator: np.random.Generator) -> Array:
    """A random tight frame: unit vectors (count, dim) that reach `least_square`."""
    X = generator.standard_normal((count, dim))
    for _ in range(FRAME_ROUNDS):
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        scale, axes = np.linalg.eigh(X.T @ X)
        X = X @ (axes / np.sqrt(scale)) @ axes.T
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def repelled_frame(dim: int, count: int, generator: np.random.Generator) -> Array:
    """A tight frame whose words repel each other: the sum of (x·y)⁴ is made small by gradient descent."""
    X = tight_frame(dim, count, generator)
    for step in range(REPEL_STEPS):
        gram = X @ X.T
        np.fill_diagonal(gram, 0)
        force = gram**3 @ X
        force -= (force * X).sum(1, keepdims=True) * X
        size = np.sqrt((force**2).sum(1).mean()) + 1e-12
        X -= 0.05 * (1 - step / REPEL_STEPS) * force / size
        X /= np.linalg.norm(X, axis=1, keepdims=True)
    return X
