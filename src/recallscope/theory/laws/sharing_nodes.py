"""Where the step from noise to recall looks at its integrand: nodes over the noise power R, its part Z, its rest q.

`product` is the plain twin: Gauss rules of Z and of q side by side, many nodes. `fitted` asks first what decides a
query: the cosine between the right word and what is read. Nodes are spread over the undecided cosines, and few nodes
of q, fitted to each cosine, do the rest. 16 points give the accuracy of 150, or of 700 where D* is small.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, ndtri

from recallscope.theory.problem import Array
from recallscope.theory.quadrature import Rule, gamma_rule, normal_rule

SIGN_CODE = 1.05  # below this many dimensions key codes are signs
LOST = 9.0  # e^-LOST: the chance to win at cosines that get no node
TAIL = 4.0  # standard deviations of c / sqrt(q) beyond which there is no node


class Noise(NamedTuple):
    """What one query meets; arrays of one axis."""

    N_star: Array  # dimensions of the key code
    D_star: Array  # dimensions of the value code
    n: Array  # noise pairs, counted in facts
    spread: Array  # relative variance of the noise power between sequences
    repeats: Array  # chance that the filler wrote the right value once more, with another key
    once: Array  # competitors written once
    twice: Array  # competitors written twice
    never: Array  # competitors not in the context
    reach: Array  # alpha_c, largest weight that a wrong key has; 1 if keys do not repel each other
    stretch: Array  # gamma, by which the other weights grow in turn

    @property
    def freedom(self) -> Array:
        """k of q ~ chi²_k / k: fewer noise pairs than dimensions make the remainder stiffer."""
        return (self.D_star - 1) / (1 - np.minimum(0.9, 3 / self.n))


class Counts(NamedTuple):
    """Numbers of nodes: over R, Z and q, and over the weight of a competitor written once or twice.

    Where `above` is not 0, a weight has as many more beyond the point where its integrand bends (see `split_rule`).
    """

    norm: Any  # an array with a number per query, or one for all
    signal: Any
    residual: Any
    once: Any
    twice: Any
    once_above: Any
    twice_above: Any


class Points(NamedTuple):
    """Points of Z and q, and their weights; axes: query, R, point (R of length 1 where all R share them)."""

    Z: Array
    q: Array
    weights: Array


def wallace(nu: Array) -> Array:
    """Factor of Wallace's normal approximation of Student's t."""
    return (8 * nu + 1) / (8 * nu + 3)


def product_counts(noise: Noise, width: Array) -> Counts:
    """For 1e-4: more nodes where noise power varies, q has few degrees, or D* is large."""
    easy = noise.spread <= np.where(noise.N_star < 6, 0.02, 0.1)  # few key dimensions make edges in R
    norm = np.select([easy, noise.spread <= 0.2], [8, 16], 40)
    q_variance = 2 / noise.freedom
    residual = np.select([q_variance <= 0.15, q_variance <= 0.3], [7, 14], 32)
    weight = np.where((noise.D_star <= 128) & (noise.reach == 1), 6, 16)
    return Counts(norm, np.full_like(norm, 28), residual, weight, weight, 0 * weight, 0 * weight)


def product(noise: Noise, s2: Array, width: Array, signal_nodes: int, residual_nodes: int) -> Points:
    """Every node of Z with every node of q."""
    Z, Z_weights = _signal_rule(signal_nodes)
    q, q_weights = gamma_rule(2 / noise.freedom, residual_nodes)
    shape = (len(q), 1, len(Z), residual_nodes)
    each = (width[:, None] * Z)[:, None, :, None], q[:, None, None, :], Z_weights[:, None] * q_weights[:, None, None, :]
    return Points(*(np.broadcast_to(a, shape).reshape(len(q), 1, -1) for a in each))


@cache
def _signal_rule(n: int) -> Rule:
    """Normal rule without its outermost nodes, which together weigh less than 1e-6."""
    nodes, weights = normal_rule(n)
    keep = weights > 1e-6
    return nodes[keep], weights[keep] / weights[keep].sum()


def fitted_counts(noise: Noise, width: Array) -> Counts:
    """For 1e-3, all numbers found by trial. A repeat (`width` > 1) that is rare needs less."""
    v, N, steep = noise.spread, noise.N_star, noise.D_star / noise.n
    chance = np.where(width > 1, noise.repeats, 1)
    rare, signs, cut = chance < 0.06, N < SIGN_CODE, noise.reach < 1
    norm = np.select([v <= 0.04, v <= 0.1, v <= 0.2], [3, 4, 6], 8)
    norm = np.where(N < 7, np.select([v <= 0.04, v <= 0.1, v <= 0.15], [4, 6, 10], 16), norm)
    norm = np.where(N < 4, np.select([v <= 0.04, v <= 0.15], [4, 10], 40), norm)
    signal = np.where(signs, 15, 9) + 1.5 * (width - 1) + 2.5 * np.log10(chance)
    once = np.select([steep <= 1, steep <= 16], [3, 4], 6)
    once = np.where(cut, np.select([steep <= 4, steep <= 100], [5, 7], 12), once)
    return Counts(
        norm=np.where(rare, np.minimum(norm, 3), norm),
        signal=np.clip(3 * np.ceil(signal / 3).astype(int), 6, 39),
        residual=np.where(rare, 1, 2),
        once=np.where(signs, 1, once - rare),
        twice=np.select([steep <= 2, steep <= 4, steep <= 8], [3, 5, 6], 8),
        once_above=np.where(cut & ~signs, 4, 0),
        twice_above=np.where(steep > 16, 12, 0),
    )


def fitted(noise: Noise, s2: Array, width: Array, signal_nodes: int, residual_nodes: int) -> Points:
    """Midpoints in z, and for each of them a Gauss rule around the likeliest q.

    z is the normal score of t = c / sqrt(q): a word that is not in the context loses against the right one with chance
    Phi(z), whatever q is. Given t, q^(1/3) is nearly normal. Weights are ratios of densities, so that no form is
    assumed. They are summed over 4 nodes of q, which cost nothing, and shared among `residual_nodes`.
    """
    D, k, sigma = (a[:, None, None] for a in (noise.D_star, noise.freedom, width))
    signal, nu = np.sqrt(D / s2[..., None]), D - 1
    scale = wallace(nu) ** 2 * nu  # z² = scale log(1 + t² / nu)
    competitors = np.maximum(noise.never + noise.once + noise.twice, 1)[:, None, None]
    lost = ndtri(np.exp(-LOST / competitors))
    least, most = (_score(_end(signal, sigma, k, side), nu, scale) for side in (-TAIL, TAIL))
    low = np.maximum(least, lost)
    step = (np.maximum(most, low + 0.5) - low) / signal_nodes
    z = low + step * (np.arange(signal_nodes) + 0.5)
    z = np.where(np.abs(z) < 1e-6, 1e-6, z)
    y = np.minimum(z**2 / scale, 600)
    t = np.copysign(np.sqrt(nu * np.expm1(y)), z)
    step_t = step * np.exp(y) * z * nu / (scale * t)

    # density of r = sqrt(q) times that of Z = t r - signal, dZ = r dt: r^k exp(-curvature r² / 2 + slope r)
    curvature, slope = k + (t / sigma) ** 2, t * signal / sigma**2
    root = np.sqrt(slope**2 + 4 * curvature * (k + 1 / 3))
    mode = np.where(slope > 0, (slope + root) / (2 * curvature), 2 * (k + 1 / 3) / (root - np.minimum(slope, 0)))
    narrow = 1 / np.sqrt(curvature * mode**2 + k + 1 / 3)
    constant = np.log(2 / sigma) + k / 2 * np.log(k / 2) - gammaln(k / 2)

    def around_mode(n: int) -> Points:
        h, h_weights = normal_rule(n)
        stretched = np.maximum(1 + narrow[..., None] * (2 / 3 * h), 0.01)
        r = mode[..., None] * stretched**1.5
        Z = t[..., None] * r - signal[..., None]
        log_density = k[..., None] * (np.log(r) - r**2 / 2) - (Z / sigma[..., None]) ** 2 / 2 + h**2 / 2
        density = np.exp(log_density + constant[..., None]) * np.sqrt(stretched) * h_weights
        return Points(Z, r**2, density * (step_t * narrow * mode)[..., None])

    weights = around_mode(4).weights.sum(axis=-1)
    weights /= np.where(low > lost, weights.sum(axis=-1, keepdims=True), 1)  # nothing is left out: the sum is 1
    points = around_mode(residual_nodes)
    shares = points.weights / np.maximum(points.weights.sum(axis=-1, keepdims=True), 1e-300)
    shape = (*z.shape[:2], -1)
    return Points(points.Z.reshape(shape), points.q.reshape(shape), (weights[..., None] * shares).reshape(shape))


def _end(signal: Array, sigma: Array, k: Array, deviations: float) -> Array:
    """t so many standard deviations away from its mean, of which Z and q have their shares."""
    by_q = np.maximum(signal + deviations * sigma, sigma) / np.sqrt(2 * k)  # standard deviation of t due to q, there
    both = np.hypot(sigma, by_q)
    c = signal + deviations * sigma**2 / both
    cube_root = 1 - 2 / (9 * k) - deviations * by_q / both * np.sqrt(2 / (9 * k))  # of q, by Wilson and Hilferty
    return c / np.where(c > 0, np.maximum(cube_root, 0.05) ** 1.5, 1)


def _score(t: Array, nu: Array, scale: Array) -> Array:
    return np.copysign(np.sqrt(scale * np.log1p(t**2 / nu)), t)
