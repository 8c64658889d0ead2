"""The designed model's recall from the exact geometry of its weights: unit vectors instead of Gaussians.

A query reads u = A E_v + w out of the state: the right value, weighted by its own key's match A, and n other pairs.
The logits are inner products of u with unit vectors, so

* A = (D/N) Beta(N/2, (D-N)/2) also scales the weights of the other pairs: signal and noise rise together;
* a token that is not in the context has logit |u| T, T one coordinate of a random unit vector: bounded, so a strong
  signal is never drowned by its own echo;
* every token read before the query on the value side (values, later keys, earlier queries, filler) carries a weight
  of its own and competes more strongly than the rest; some stand there twice.

No constant is fitted. `top_probability` is shared with the laws of the trained model (`selective.py`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from recallscope.theory.inputs import Array, LawTask, letters
from recallscope.theory.quadrature import (
    beta_rule,
    exact_slot_rule,
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
    key_dim: Array  # dimension whose coordinates the pair weights are: D designed, N trained
    pairs: Array  # n, noise pairs in the state
    once: Array  # competitors standing once on the value side
    twice: Array  # ... and twice (or, rarely, more often)
    empty: Array  # all other tokens
    spread: Array  # variance of R = s² over its mean
    logit_variance: Array


def designed_improved_law(
    *,
    vocab_size: ArrayLike,
    num_facts: ArrayLike,
    embed_dim: ArrayLike,
    state_dim: ArrayLike,
    task: LawTask = "mqar",
    length: ArrayLike | None = None,
) -> Array:
    """Mean chance that the designed model answers a query rightly; nan where N > D, which cannot be designed.

    Paper: weights of App. E.1 (`app-subsec:designed-weights`); takes the place of Thm F.2
        (`app-thm:designed-scaling-law`) and of Eq. label `eq:p-succ-exact`.
    Holds for: random filler, spherical E, N <= D, D >= 8. Against Monte Carlo on the paper's three regimes the mean
        error is .004 and the largest .015, with a bias of -.004; for N_f <= 3 it grows to .02. Below D = 8 recall is
        a few times chance and the law falls short of it (by up to .005 for N_f = 16, .05 for N_f = 4, .08 for N_f = 2).
        L > 4 N_f is checked to .015 up to L = 2 V, and refused beyond.
    Departs: logits of tokens are not independent given the right one (they share u), nor are they Gaussian; the
        self-noise 1/D scales with the signal and sets no ceiling; competitors are all tokens on the value side, not
        N_f - 1; Var(A) = 2 (D - N) / (N (D + 2)), twice the printed one; the mean is over query slots. A filler token
        that equals the queried key makes a second fact of it, so MQAR stays below 1 however large the model is.
    """
    return _designed(vocab_size, num_facts, embed_dim, state_dim, task, length, lite=False)


def designed_lite_law(
    *,
    vocab_size: ArrayLike,
    num_facts: ArrayLike,
    embed_dim: ArrayLike,
    state_dim: ArrayLike,
    task: LawTask = "mqar",
    length: ArrayLike | None = None,
) -> Array:
    """`designed_improved_law` with a Gaussian signal and the noise norm at its mean: nine times faster.

    Paper: as `designed_improved_law` (`app-thm:designed-scaling-law`).
    Holds for: D >= 16, N_f >= 4; mean error .011 against Monte Carlo on the paper's three regimes, at most .06.
    """
    return _designed(vocab_size, num_facts, embed_dim, state_dim, task, length, lite=True)


def _designed(
    vocab_size: ArrayLike,
    num_facts: ArrayLike,
    embed_dim: ArrayLike,
    state_dim: ArrayLike,
    task: LawTask,
    length: ArrayLike | None,
    *,
    lite: bool,
) -> Array:
    args = letters(
        vocab_size=vocab_size,
        num_facts=num_facts,
        embed_dim=embed_dim,
        state_dim=state_dim,
        task=task,
        length=length,
    )
    if np.any(args.V < 2 * args.N_f + 2):
        raise ValueError(
            f"num_facts={np.max(args.N_f):g} needs as many distinct keys out of vocab_size/2 - 1 (Sec. 2), and some "
            f"vocab_size is too small. Use vocab_size >= 2 num_facts + 2 = {np.max(2 * args.N_f + 2):g}."
        )
    if np.any(args.L > 2 * args.V):
        raise ValueError(
            f"length={np.max(args.L):g} is more than twice some vocab_size: random filler then rewrites the facts more "
            f"often than this law was checked for. Use length <= 2 vocab_size = {np.min(2 * args.V):g}."
        )
    shape = args.V.shape
    V, N_f, D, N = (a.ravel() for a in args[:4])
    result = np.where(N > D, np.nan, 1 / V)  # a line (D < 2) only guesses
    real = np.flatnonzero((N <= D) & (D >= 2))
    if real.size:
        V, N_f, D, N, G = (a.ravel()[real][:, None] for a in (*args[:4], args.G))
        g, slot_weight = exact_slot_rule(G[:, 0], 1 if task == "ar" else NODES.slots)
        filler, contest = designed_contest(V, N_f, D, N, G, g)
        flat = Contest(*(np.broadcast_to(a, g.shape).ravel() for a in contest))
        p = top_probability(flat, signal=True, lite=lite).reshape(g.shape)
        # k filler tokens equal to the queried key make k more right answers: E (1 - (1-p)^(k+1)) / (k+1), k binomial
        p = -np.expm1((filler + 1) * np.log1p(-p / V)) * V / (filler + 1)
        result[real] = np.clip((slot_weight * p).sum(-1), 1 / V[:, 0], 1)
    return result.reshape(shape)


def designed_contest(V: Array, N_f: Array, D: Array, N: Array, G: Array, g: Array) -> tuple[Array, Contest]:
    """Expected counts of everything in the state when the query of slot g is read; and the number of filler tokens.

    The state then holds 2 N_f + 2 g pairs, one of them the right fact. Of the g slots before, a share
    (N_f - 1) / (G - 1) holds queries, the rest and all odd positions hold filler.
    """
    n = 2 * N_f - 1 + 2 * g
    D = np.maximum(np.minimum(D, SATURATED * n), N)
    asked = g * (N_f - 1) / np.maximum(G - 1, 1)  # earlier queries
    filler = 2 * g - asked
    on_value_side = asked + 1  # keys that stand there as a query, this one included
    key_twice = on_value_side * (N_f - 1) / N_f  # all but the first key stand there in the context, too
    key_once = (N_f - 1) * (1 - on_value_side / N_f) + on_value_side / N_f
    # filler equal to a token of the facts or to other filler, to first order in filler/V; where that is not small it
    # counts too many tokens as standing twice, which about makes up for the noise of repeated keys, left out here
    hits = filler * (2 * N_f + np.maximum(filler - 1, 0) / 2) / V
    once = np.maximum(N_f - 1 + key_once + filler - 2 * hits, 0)
    twice = key_twice + hits
    # squares of sphere coordinates; an asked key weighs two pairs at once, a token standing twice adds a cross term
    spread = (2 * (D - 1) / (D + 2) * (n + 2 * asked) + 4 * key_twice) / n**2
    logit_variance = 1 + filler / V * D / n  # filler may be the right value, too
    empty = np.maximum(V - 1 - once - twice, 0)
    return filler, Contest(D, N, D, n, once, twice, empty, spread, logit_variance)


def top_probability(contest: Contest, *, signal: bool, lite: bool = False) -> Array:
    """P(the right logit is the largest of all), for every entry of a flat contest.

    `signal`: the signal A is random, as for designed weights; else A = 1.   `lite`: see `designed_lite_law`.
    """
    p = np.empty(contest.D.shape)
    wide = (contest.D > WIDE * contest.pairs) & (not lite)
    small = (contest.D < TAIL_DIM) & ~wide
    for is_small, is_wide in ((False, False), (True, False), (False, True)):
        index = np.flatnonzero((small == is_small) & (wide == is_wide))
        if is_wide:
            logits = (NODES.signal if signal else 1) * NODES.wide_spread * NODES.jitter
            points = logits * NODES.wide_norm * NODES.wide_weight
        else:
            points = NODES.logit * (1 if lite else NODES.tail_norm if is_small else NODES.norm) * NODES.weight
        step = max(1, CHUNK // points)
        for start in range(0, index.size, step):
            part = index[start : start + step]
            entries = Contest(*(a[part] for a in contest))
            p[part] = _top_probability(entries, signal=signal, lite=lite, small=is_small, wide=is_wide)
    return p


def _top_probability(contest: Contest, *, signal: bool, lite: bool, small: bool, wide: bool) -> Array:
    """Axes: entry, logit c, noise norm chi, weight t."""
    D, _, _, n, once, twice, empty, _, _ = contest
    entries = D.size
    c, density, noise, above = _gaussian_logit(contest) if lite else _right_logit(contest, signal, wide)

    # chi: length of the noise at right angles to the right value; few pairs make it vary less than D - 1 normals would
    variance = 2 * np.maximum(1 - 3 * (once + 4 * twice) / n**2, 0.1) / (D - 1)
    if lite:
        q, q_weight = np.ones((entries, 1)), np.ones((entries, 1))
    else:
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


def _right_logit(contest: Contest, signal: bool, wide: bool) -> Logits:
    """The right logit: signal sqrt(N D / n) sqrt(A / R) plus normal noise."""
    D, N, _, n, _, _, _, spread, logit_variance = contest
    entries = D.size
    A, A_weight = beta_rule(N / 2, (D - N) / 2, NODES.signal) if signal else (np.ones((entries, 1)),) * 2
    A = np.maximum(A, 0) * (D / N)[:, None] if signal else A
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


def _gaussian_logit(contest: Contest) -> Logits:
    """The same with a normal signal, its two moments to second order in the variances of A and R."""
    D, N, _, n, _, _, _, spread, logit_variance = (a[:, None] for a in contest)
    var_A = 2 * (D - N) / (N * (D + 2))
    mean = np.sqrt(N * D / n) * (1 - var_A / 8 + 3 * spread / 8)
    variance = N * D / n * (var_A + spread) / 4 + logit_variance
    sd = np.sqrt(variance)
    low, high, c, c_weight = _undecided(contest, mean, sd)
    inside, above = ndtr((high - mean) / sd) - ndtr((low - mean) / sd), ndtr((mean - high) / sd)
    density = np.exp(-0.5 * ((c - mean) / sd) ** 2) * c_weight
    return c, _scaled(density, inside), (c - mean) * logit_variance / variance, above[:, 0]


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
    kurtosis = (3 + (3 * contest.key_dim / (contest.key_dim + 2) - 3) / m) / (1 + contest.spread)
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
