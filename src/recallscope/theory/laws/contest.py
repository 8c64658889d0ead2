"""The chance that the right logit is the largest, from the exact geometry of unit vectors instead of Gaussians.

A query reads u = A E_v + w out of the state: the right value, weighted by its own key's match A, and n other pairs.
The logits are inner products of u with unit vectors, so

* A = (D/N) Beta(N/2, (D-N)/2) also scales the weights of the other pairs: signal and noise rise together;
* a token that is not in the context has logit |u| T, T one coordinate of a random unit vector: bounded, so a strong
  signal is never drowned by its own echo;
* every token read before the query on the value side (values, later keys, earlier queries, filler) carries a weight
  of its own and competes more strongly than the rest; some stand there twice.

No constant is fitted. The law of designed weights (`designed.py`) rests on it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri

from recallscope.theory.problem import Array, Problem
from recallscope.theory.quadrature import (
    beta_rule,
    gamma_rule,
    gamma_tail_rule,
    normal_rule,
    sphere_coordinate_cdf,
    uniform_rule,
)


class Nodes(NamedTuple):
    """Quadrature nodes per variable; finer rules move the laws by less than 1e-5, or 2e-3 where D > WIDE n."""

    slots: int = 5
    signal: int = 16  # A
    spread: int = 24  # R
    logit: int = 40  # c
    norm: int = 8  # chi
    tail_norm: int = 24  # chi when D < TAIL_DIM
    weight: int = 12  # t
    jitter: int = 5  # c around its signal, when D > WIDE n
    wide_spread: int = 32  # R, when D > WIDE n
    wide_norm: int = 4  # chi, when D > WIDE n
    wide_weight: int = 40  # t, when D > WIDE n


NODES = Nodes()
CHUNK = 1_000_000  # quadrature points per pass: about 8 MB per array, and a dozen arrays at a time
TAIL_DIM = 12.0  # below, success lives on rare small noise
WIDE = 20.0  # above this D/n signal and weights vary far more than the noise does
SATURATED = 256.0  # above this D/n the noise of values is nothing, and only hard to integrate
STRETCH = 8.0  # logits beyond this get ever fewer nodes


class Contest(NamedTuple):
    """What decides one query, as flat arrays of one length: the right logit c against three kinds of competitors.

    In units of s / sqrt(D), s the norm of the noise weights, c = snr sqrt(A/R) + noise with the variance
    `logit_variance`.
    """

    D: Array  # dimension of the value embeddings
    N: Array  # dimension of the key hash
    pairs: Array  # n, noise pairs in the state
    once: Array  # competitors standing once on the value side
    twice: Array  # ... and twice (or, rarely, more often)
    empty: Array  # all other tokens
    spread: Array  # variance of R = s² over its mean
    logit_variance: Array


def check_keys(problem: Problem) -> None:
    """These laws draw N_f distinct keys."""
    V, N_f = problem.V, problem.N_f
    if np.any(V < 2 * N_f + 2):
        raise ValueError(
            f"num_facts={np.max(N_f):g} needs as many distinct keys out of vocab_size/2 - 1 (Sec. 2), and some "
            f"vocab_size is too small. Use vocab_size >= 2 num_facts + 2 = {np.max(2 * N_f + 2):g}."
        )


def top_probability(contest: Contest) -> Array:
    """P(the right logit is the largest of all), for every entry of a flat contest."""
    p = np.empty(contest.D.shape)
    wide = contest.D > WIDE * contest.pairs
    small = (contest.D < TAIL_DIM) & ~wide
    for is_small, is_wide in ((False, False), (True, False), (False, True)):
        index = np.flatnonzero((small == is_small) & (wide == is_wide))
        if is_wide:
            logits = NODES.signal * NODES.wide_spread * NODES.jitter
            points = logits * NODES.wide_norm * NODES.wide_weight
        else:
            points = NODES.logit * (NODES.tail_norm if is_small else NODES.norm) * NODES.weight
        step = max(1, CHUNK // points)
        for start in range(0, index.size, step):
            part = index[start : start + step]
            entries = Contest(*(a[part] for a in contest))
            p[part] = _top_probability(entries, small=is_small, wide=is_wide)
    return p


def _top_probability(contest: Contest, *, small: bool, wide: bool) -> Array:
    """Axes: entry, logit c, noise norm chi, weight t."""
    D, _, n, once, twice, empty, _, _ = contest
    c, density, noise, above = _right_logit(contest, wide)

    # chi: length of the noise at right angles to the right value; few pairs make it vary less than D - 1 normals would
    variance = 2 * np.maximum(1 - 3 * (once + 4 * twice) / n**2, 0.1) / (D - 1)
    norms = NODES.wide_norm if wide else NODES.norm
    q, q_weight = gamma_tail_rule(variance, NODES.tail_norm) if small else gamma_rule(variance, norms)
    c, noise, dim = c[:, :, None], noise[:, :, None], D[:, None, None]
    chi2 = (dim - 1) * q[:, None, :]
    log_p = empty[:, None, None] * _log(sphere_coordinate_cdf(c / np.sqrt(c**2 + chi2), dim))
    weights = NODES.wide_weight if wide else NODES.weight
    for count, multiplicity in ((once, 1), (twice, 2)):
        if np.any(count > 0):
            log_p += count[:, None, None] * _log(_below(contest, multiplicity, c, noise, chi2, weights))
    won = (q_weight[:, None, :] * np.exp(log_p)).sum(-1)
    return np.clip((density * won).sum(-1) + above, 0, 1)


def _log(p: Array) -> Array:
    return np.log(np.maximum(p, 1e-300))


Logits = tuple[Array, Array, Array, Array]
"""Nodes c, their weights, the mean noise E[c - signal | c], and the chance that c lies above all nodes."""


def _right_logit(contest: Contest, wide: bool) -> Logits:
    """The right logit: signal sqrt(N D / n) sqrt(A / R) plus normal noise."""
    D, N, n, _, _, _, spread, logit_variance = contest
    entries = D.size
    A, A_weight = beta_rule(N / 2, (D - N) / 2, NODES.signal)
    A = np.maximum(A, 0) * (D / N)[:, None]
    R, R_weight = gamma_tail_rule(np.maximum(spread, 1e-6), NODES.wide_spread if wide else NODES.spread)
    delta = np.sqrt((N * D / n)[:, None, None] * A[:, :, None] / R[:, None, :]).reshape(entries, -1)
    weight = (A_weight[:, :, None] * R_weight[:, None, :]).reshape(entries, -1)
    sd_noise = np.sqrt(logit_variance)[:, None]
    mean = (weight * delta).sum(-1, keepdims=True)
    sd = np.sqrt((weight * (delta - mean) ** 2).sum(-1, keepdims=True) + sd_noise**2)
    if wide:  # the noise is a detail: jitter every value of the signal
        z, z_weight = normal_rule(NODES.jitter)
        c = (delta[:, :, None] + sd_noise[:, :, None] * z).reshape(entries, -1)
        density = (weight[:, :, None] * z_weight).reshape(entries, -1)
        return c, density, (c - mean) * (sd_noise / sd) ** 2, np.zeros(entries)
    low, high, c, c_weight = _undecided(contest, mean, sd)
    mixture = np.exp(-0.5 * ((c[:, :, None] - delta[:, None, :]) / sd_noise[:, :, None]) ** 2) * weight[:, None, :]
    density = mixture.sum(-1)
    noise = c - (mixture * delta[:, None, :]).sum(-1) / np.maximum(density, 1e-300)
    inside = (weight * (ndtr((high - delta) / sd_noise) - ndtr((low - delta) / sd_noise))).sum(-1, keepdims=True)
    above = (weight * ndtr((delta - high) / sd_noise)).sum(-1)
    return c, _scaled(density * c_weight, inside), noise, above


def _undecided(contest: Contest, mean: Array, sd: Array) -> tuple[Array, Array, Array, Array]:
    """Lowest and highest logit worth a node (below some competitor surely wins, above surely none), nodes, weights."""
    many, D, n = np.maximum(contest.empty, 1)[:, None], contest.D[:, None], contest.pairs[:, None]
    z_low = ndtri(np.exp(-18 / many))
    lost = np.where(D < TAIL_DIM, np.minimum(0, 1.5 * z_low), np.minimum(0.4 * z_low, 1.5 * z_low))
    echo = 1.6 * (D - 1) * np.expm1(np.minimum(2 / (D - 1) * np.log(1e6 * many), 500))
    won = np.sqrt(echo + 50 * D / n)
    low = np.maximum(mean - 8 * sd, lost)
    high = np.maximum(np.minimum(mean + 8 * sd, won), low + 1)
    u, u_weight = uniform_rule(NODES.logit)
    stretch = np.arcsinh((high - low) / STRETCH) * (u + 1) / 2
    return low, high, low + STRETCH * np.sinh(stretch), np.cosh(stretch) * u_weight


def _scaled(density: Array, total: Array) -> Array:
    """The chance of an undecided logit is known exactly, so the rule only has to find the shape."""
    return density * (total / np.maximum(density.sum(-1, keepdims=True), 1e-300))


def _below(contest: Contest, multiplicity: int, c: Array, noise: Array, chi2: Array, nodes: int) -> Array:
    """P(the logit of a token standing `multiplicity` times on the value side lies below c).

    Its weight is s t, t a coordinate of a unit vector whose dimension gives the right kurtosis. Given the noise
    vector, its embedding follows a von Mises-Fisher law around it: mean t along it, and shrunken by 1 - t² across.
    """
    m = multiplicity
    kurtosis = (3 + (3 * contest.D / (contest.D + 2) - 3) / m) / (1 + contest.spread)
    dim_t = np.maximum(2 * kurtosis / (3 - kurtosis), 1.001)
    b, t_weight = beta_rule((dim_t - 1) / 2, (dim_t - 1) / 2, nodes)
    t = np.clip(np.sqrt(dim_t * m / contest.pairs)[:, None] * (2 * b - 1), -0.995, 0.995)[:, None, None, :]
    D = contest.D[:, None, None]
    along = c * noise + chi2  # D times the overlap of u with the noise
    u2, noise2 = c**2 + chi2, noise**2 + chi2
    b_along = along**2 / noise2
    b_across = np.maximum(u2 - b_along, 0)
    rest = 1 - t**2
    width = np.sqrt(b_along[..., None] * (rest**2 / (1 + t**2)) + b_across[..., None] * rest)
    tau = (c[..., None] - t * (along / np.sqrt(D))[..., None]) / width
    return (t_weight[:, None, None, :] * sphere_coordinate_cdf(tau, D[..., None])).sum(-1)
