"""Gauss rules for expectations, one rule per entry of an array of shapes; and the average over query slots.

Golub-Welsch throughout: nodes are eigenvalues of a small tridiagonal matrix, weights the squared first components
of its eigenvectors. It stays accurate for large shapes, where scipy's `roots_*` overflow.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammainccinv, gammaincinv, ndtr

Rule = tuple[NDArray[np.float64], NDArray[np.float64]]


def golub_welsch(diagonal: NDArray[np.float64], off_squared: NDArray[np.float64]) -> Rule:
    """Nodes and weights (summing to 1) of the measure with these three-term recurrence coefficients (last axis)."""
    n = diagonal.shape[-1]
    J = np.zeros((*diagonal.shape, n))
    k = np.arange(n)
    J[..., k, k] = diagonal
    J[..., k[1:], k[:-1]] = np.sqrt(off_squared)  # eigh reads the lower triangle
    nodes, vectors = np.linalg.eigh(J)
    return nodes, vectors[..., 0, :] ** 2


@cache
def normal_rule(n: int) -> Rule:
    """E f(Z), Z standard normal."""
    return _frozen(golub_welsch(np.zeros(n), np.arange(1.0, n)))


@cache
def uniform_rule(n: int) -> Rule:
    """E f(U), U uniform on (-1, 1)."""
    k = np.arange(1.0, n)
    return _frozen(golub_welsch(np.zeros(n), k**2 / (4 * k**2 - 1)))


def _frozen(rule: Rule) -> Rule:
    for array in rule:
        array.flags.writeable = False
    return rule


def gamma_rule(variance: ArrayLike, n: int) -> Rule:
    """E f(R), R Gamma with mean 1 and the given variance; shape `variance.shape + (n,)`.

    A variance of 0 is the point mass at 1.
    """
    v = np.asarray(variance, float)[..., None]
    k = np.arange(n, dtype=float)
    # generalised Laguerre with shape 1/v, divided by the shape so that v = 0 needs no limit
    diagonal = 1 + 2 * k * v
    off_squared = k[1:] * v * (1 + (k[1:] - 1) * v)
    return golub_welsch(diagonal + 0 * v, off_squared + 0 * v)


def gamma_tail_rule(variance: ArrayLike, n: int) -> Rule:
    """E f(R) as `gamma_rule`, by the trapezoid rule in log R: for f that lives or bends near R = 0.

    Gauss nodes pass such f by. The variance must be positive.
    """
    shape = 1 / np.asarray(variance, float)[..., None]
    low = np.log(gammaincinv(shape, 1e-7) / shape)
    high = np.log(gammainccinv(shape, 1e-10) / shape)
    log_R = low + (high - low) * np.linspace(0, 1, n)
    weights = np.exp(shape * (log_R + 1 - np.exp(log_R)))
    return np.exp(log_R), weights / weights.sum(-1, keepdims=True)


def beta_rule(alpha: ArrayLike, beta: ArrayLike, n: int) -> Rule:
    """E f(B), B ~ Beta(alpha, beta) on (0, 1); beta = 0 is the point mass at 1."""
    alpha, beta = np.broadcast_arrays(np.asarray(alpha, float), np.asarray(beta, float))
    a, b = alpha[..., None], beta[..., None]
    k = np.arange(n, dtype=float)
    j, s = k[1:], a + b + 2 * k
    with np.errstate(divide="ignore", invalid="ignore"):
        diagonal = np.where(k == 0, a / (a + b), 0.5 * (1 + (a - b) * (a + b - 2) / ((s - 2) * s)))
        s = s[..., 1:]
        off = j * (a + j - 1) * (b + j - 1) * (a + b + j - 2) / ((s - 1) * (s - 2) ** 2 * (s - 3))
        off = np.where(j == 1, a * b / ((a + b) ** 2 * (a + b + 1)), off)
    return golub_welsch(diagonal, np.maximum(off, 0))


def split_rule(beta: ArrayLike, cut: ArrayLike, below: int, above: int) -> Rule:
    """E f(B), B ~ Beta(1/2, beta), for f that bends or jumps at a cut: Legendre nodes of the angle on both sides.

    B is the square of a coordinate of a random unit vector in 2 beta + 1 dimensions, sin² of its angle. With none
    `above` it is `beta_rule`.
    """
    if not above:
        return beta_rule(0.5, beta, below)
    beta, cut = np.broadcast_arrays(np.asarray(beta, float), np.asarray(cut, float))
    reach = 4.5 / np.sqrt(2 * beta)  # 4.5 standard deviations
    middle = np.minimum(np.arcsin(np.sqrt(np.clip(cut, 0, 1))), reach)
    end = np.minimum(np.pi / 2, middle + reach)
    parts = []
    for low, high, n in ((0 * middle, middle, below), (middle, end, above)):
        u, u_weights = uniform_rule(n)
        angle = low[..., None] + (high - low)[..., None] * (1 + u) / 2
        parts.append((angle, (high - low)[..., None] * u_weights))
    angle, weights = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    weights = weights * np.maximum(np.cos(angle), 1e-8) ** (2 * beta - 1)[..., None]
    return np.sin(angle) ** 2, weights / weights.sum(axis=-1, keepdims=True)


def sphere_coordinate_cdf(tau: ArrayLike, dim: ArrayLike) -> NDArray[np.float64]:
    """P(T <= tau), T one coordinate of a uniform unit vector in R^dim (dim > 1, need not be whole).

    sqrt(nu) T / sqrt(1 - T^2) is Student's t with nu = dim - 1; Wallace's normal approximation of its cdf.
    """
    tau, nu = np.asarray(tau, float), np.asarray(dim, float) - 1
    inside = np.clip(tau, -1 + 1e-16, 1 - 1e-16)
    z = (8 * nu + 1) / (8 * nu + 3) * np.sqrt(-nu * np.log1p(-(inside**2)))
    return np.asarray(ndtr(np.copysign(z, tau)))


def slot_rule(num_slots: ArrayLike, n: ArrayLike) -> Rule:
    """Mean over g = 0 .. G-1 by the n-point Gauss rule of that discrete measure, an axis more.

    It is exact if G <= n, or on polynomials of degree < 2n. Nodes stay within [0, G-1]; where the entries of G and n
    ask for different numbers of nodes, spare ones carry no weight. n = 5 is accurate to 1e-6 on the designed laws.
    """
    G = np.asarray(num_slots, float)[..., None]
    own = np.minimum(np.asarray(n)[..., None], G)
    k = np.arange(float(np.max(own, initial=1)))
    diagonal = np.where(k < own, (G - 1) / 2, -1 - k)  # rows beyond an entry's nodes: cut off, with weight 0
    j = k[1:]
    off_squared = np.where(j < own, j**2 * (G**2 - j**2) / (4 * (4 * j**2 - 1)), 0)  # discrete Chebyshev polynomials
    nodes, weights = golub_welsch(diagonal, off_squared)
    return np.clip(nodes, 0, np.maximum(G - 1, 0)), np.where(nodes < -0.5, 0.0, weights)
