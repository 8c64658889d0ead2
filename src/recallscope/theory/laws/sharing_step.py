"""From noise to recall: the chance that the right value has the largest logit, given codes and noise pairs.

The logits of the values are inner products of their code words, unit vectors in D* dimensions, with signal
plus noise. All competitors see the same noise vector, so their logits are neither independent nor normal. The
step therefore averages over what they share (the size of the noise, its part along the right word, its
length) and multiplies over competitors what is left: an empty one is a random direction, one from the context
is itself a part of the noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, betaincinv, gammaincc, ndtr

from recallscope.theory.laws import sharing_nodes
from recallscope.theory.laws.sharing_nodes import SIGN_CODE, Counts, Noise, Points, wallace
from recallscope.theory.problem import Array
from recallscope.theory.quadrature import Rule, gamma_rule, split_rule

LARGEST_PART = 0.995  # of the noise that one competitor may be: its posterior degenerates at 1
FEW_DIMENSIONS = 1.2  # below this many keys cannot move apart
LEAST_REACH = 1.3  # over sqrt(N*): no code keeps all weights below 1 / sqrt(N*) (Welch)
ELEMENTS = 16_000  # of a work array: it stays in cache, and malloc need not ask the system for it


class _View(NamedTuple):
    """What all competitors share, in units of s / sqrt(D*); axes: query, R, 1, Zq, some of length 1."""

    D: Array
    Z: Array
    q: Array
    k: Array  # degrees of freedom of q
    c: Array  # noisy signal
    u2: Array  # squared length of signal plus noise
    x: Array  # c / u, cosine between the right word and signal plus noise
    log_rest: Array  # log(1 - x²)


def win_probability(
    noise: Noise,
    *,
    exact: bool = False,
    top_k: int = 1,
    norm_nodes: int | None = None,
    signal_nodes: int | None = None,
    residual_nodes: int | None = None,
    weight_nodes: int | None = None,
) -> Array:
    """P(right logit is the largest) for every query; or among the `top_k` largest, by the `exact` rule.

    Given what competitors share, each exceeds the right logit on its own, and nearly a Poisson number of them does. The
    chance that none does is the product over competitors, and gives its mean.

    Nodes over R, the power of the noise; Z, its part along the right word; q, the squared length of the
    remainder; and a competitor's weight. None: as many as the query needs for 1e-3, or for 1e-4 if `exact`, the slow
    twin, which lays a plain grid over Z and q (see `sharing_nodes`).

    Paper: replaces the independent normal logits of Thm 4.2 (`thm:prob-scaling-law`).
    """
    # each query once: where the rank of the keys is capped, many are equal
    rows, place = np.unique(np.stack(noise, axis=-1), axis=0, return_inverse=True)
    given = Counts(norm_nodes, signal_nodes, residual_nodes, weight_nodes, weight_nodes, None, None)
    p = _by_counts(rows, np.ones(len(rows)), given, exact or top_k > 1, top_k)
    repeats = rows[:, Noise._fields.index("repeats")]
    if np.any(again := repeats > 0):  # a repeat of the right value adds its own key weight to Z
        some = Noise(*rows[again].T)
        wider = _by_counts(rows[again], np.sqrt(1 + some.D_star / some.n), given, exact or top_k > 1, top_k)
        p[again] += some.repeats * (wider - p[again])
    return p[place.reshape(-1)]


def _by_counts(rows: Array, width: Array, given: Counts, exact: bool, top_k: int = 1) -> Array:
    """The queries in `rows`, those that need equal numbers of nodes together."""
    rule = sharing_nodes.product if exact else sharing_nodes.fitted
    counts = (sharing_nodes.product_counts if exact else sharing_nodes.fitted_counts)(Noise(*rows.T), width)
    nodes = np.stack(
        [own if n is None else np.full_like(own, n) for own, n in zip(counts, given, strict=True)], axis=-1
    )
    p = np.empty(len(rows))
    for kind in np.unique(nodes, axis=0):
        members = np.flatnonzero((nodes == kind).all(axis=-1))
        step = max(1, ELEMENTS // int(np.prod(kind[:4])))
        for start in range(0, len(members), step):
            chunk = members[start : start + step]
            p[chunk] = _win_probability(Noise(*rows[chunk].T), width[chunk], rule, Counts(*kind.tolist()), top_k)
    return p


def key_repulsion(key_dim: Array, unshared: Array, vocab: Array) -> tuple[Array, Array]:
    """Largest weight alpha_c of a wrong key among `vocab` keys, and the factor gamma of all others.

    A random frame of V_k keys in N* dimensions has neighbours with a weight near 1. Trained keys repel each other along
    N* - 1 directions: as many neighbours are pushed out, and the mean square, 1 / N*, is kept. Where keys share their
    dimensions with values (`unshared` = 0) nothing of it is seen: reach and stretch are 1.
    """
    N_star, omega, V_k = np.broadcast_arrays(key_dim, unshared, vocab)
    reach, stretch = np.ones_like(N_star), np.ones_like(N_star)
    some = (omega > 0) & (N_star >= FEW_DIMENSIONS)
    if not some.any():
        return reach, stretch
    N, b = N_star[some], (N_star[some] - 1) / 2
    pushed = np.minimum(1, 2 * omega[some] * (N - 1) / (V_k[some] - 1))
    limit = np.minimum(1, np.maximum(np.sqrt(1 - betaincinv(b, 0.5, pushed)), LEAST_REACH / np.sqrt(N)))
    low, high = np.zeros_like(N), np.full_like(N, 4.0)  # log2 gamma
    for _ in range(40):
        gamma = 2 ** ((low + high) / 2)
        z = np.minimum(1, (limit / gamma) ** 2)
        square = gamma**2 / N * betainc(1.5, b, z) + limit**2 * (1 - betainc(0.5, b, z))
        small = square < 1 / N
        low, high = np.where(small, (low + high) / 2, low), np.where(small, high, (low + high) / 2)
    reach[some], stretch[some] = limit, 2**high
    return reach, stretch


def _win_probability(noise: Noise, width: Array, rule: Callable[..., Points], counts: Counts, top_k: int = 1) -> Array:
    N_star, D_star, n = (a[:, None] for a in (noise.N_star, noise.D_star, noise.n))
    R, R_weights = gamma_rule(noise.spread, counts.norm)
    R = np.maximum(R, 1e-12)
    s2 = n * R / N_star  # squared norm of the noise weights

    # axes: query, R, weight, point
    points = rule(noise, s2, width, counts.signal, counts.residual)
    D, Z, q = D_star[..., None, None], points.Z[:, :, None], np.maximum(points.q, 1e-12)[:, :, None]
    c = np.sqrt(D / s2[..., None, None]) + Z
    rest = (D - 1) * q
    u2 = c**2 + rest
    view = _View(D, Z, q, noise.freedom[:, None, None, None], c, u2, c / np.sqrt(u2), np.log(rest / u2))

    column = (slice(None), None, None)
    wins = _empty(view)[:, :, 0] ** noise.never[column]
    if np.any(noise.once > 0):
        wins *= _in_context(view, *_weights_once(noise, s2, counts)) ** noise.once[column]
    if np.any(noise.twice > 0):
        wins *= _in_context(view, *_weights_twice(noise, R, s2, counts)) ** noise.twice[column]
    if top_k > 1:
        wins = among_best(wins, top_k)
    return np.asarray(((wins * points.weights).sum(axis=-1) * R_weights).sum(axis=-1))


def among_best(wins: Array, k: int) -> Array:
    """P(fewer than k of many competitors exceed the right one), from the chance that none does."""
    return np.asarray(gammaincc(k, -np.log(np.clip(wins, 1e-300, 1))))


def _empty(view: _View) -> Array:
    """P(a word not in the context has the smaller logit): its cosine is that of a random direction."""
    nu = view.D - 1
    return np.asarray(ndtr(np.copysign(wallace(nu) * np.sqrt(-nu * view.log_rest), view.x)))


def _weights_once(noise: Noise, s2: Array, counts: Counts) -> Rule:
    """|t|, the part of the noise that is one competitor's own, and its distribution given the noise power s².

    Its key weight alpha is a coordinate of a unit vector in N* dimensions, and s² - alpha² is left to all
    others, Gamma as the whole: density (1 - alpha²)^((N* - 3)/2) (s² - alpha²)^(a - 1) e^(beta alpha²),
    |alpha| < 1, s. The factor that ends first goes into the rule, the other into the weights.
    """
    N_star = noise.N_star[:, None]
    signs = N_star < SIGN_CODE
    N_safe, spread = np.where(signs, 3.0, N_star), np.where(signs, 1.0, noise.spread[:, None])
    a = np.maximum(1, 1 / spread - (N_safe + 2) / (2 * (N_safe - 1)))
    beta = N_safe / (noise.n[:, None] * spread)
    short = s2 < 1
    edge = np.minimum(s2, 1)
    last = np.where(short, a, (N_safe - 1) / 2)
    limit = (noise.reach / noise.stretch)[:, None] ** 2 / edge
    n = counts.once
    square, weights = split_rule(last, limit, n, counts.once_above)
    alpha2 = edge[..., None] * np.clip(square, 0, 1 - 1e-15)
    inner = np.where(short[..., None], 1.0, s2[..., None]) - alpha2
    power = np.where(short, (N_safe - 3) / 2, a - 1)
    tilt = power[..., None] * np.log(inner) + beta[..., None] * alpha2
    tilt += np.log(np.maximum(weights, 1e-300))
    weights = np.exp(tilt - tilt.max(axis=-1, keepdims=True))
    weights /= weights.sum(axis=-1, keepdims=True)
    alpha2 = np.where(signs[..., None], 1.0, alpha2)
    reach, stretch = noise.reach[:, None, None], noise.stretch[:, None, None]
    weight = np.minimum(stretch * np.sqrt(alpha2), reach)
    if counts.once_above:  # all of these weigh the same
        weight = np.concatenate([weight[..., :n], weight[..., -1:]], axis=-1)
        weights = np.concatenate([weights[..., :n], weights[..., n:].sum(axis=-1, keepdims=True)], axis=-1)
    return np.minimum(weight / np.sqrt(s2[..., None]), LARGEST_PART), weights


def _weights_twice(noise: Noise, R: Array, s2: Array, counts: Counts) -> Rule:
    """The same for a competitor written with two keys: the sum of two weights."""
    dim = np.maximum(2 * noise.N_star[:, None] / R, 1.5)
    tie = 0.25  # their sum, twice the coordinate, weighs as much as the right key
    square, weights = split_rule((dim - 1) / 2, tie, counts.twice, counts.twice_above)
    return np.minimum(2 * np.sqrt(np.maximum(square, 0) / s2[..., None]), LARGEST_PART), weights


def _in_context(view: _View, t: Array, weights: Array) -> Array:
    """P(a word from the context has the smaller logit), mean over its part +-t of the noise; query, R, Zq.

    Given the noise, its word follows a von Mises-Fisher law around the noise with concentration kappa_v. The
    density of its cosine with signal plus noise is exp(l(x)), and P is a signed-root tail of l. Maximising l
    over x is a maximum over a disc, hence on the axis of the noise: l(m) and m have closed forms, even and
    odd in t.
    """
    D, nu = view.D, view.D - 1
    X = nu * (1 + (view.q - 1) / np.sqrt(2))  # half of the common fluctuation becomes each competitor's own
    W, U = view.Z**2 + X, view.c * view.Z + X  # noise squared, noise times (signal plus noise)
    along = U**2 / W
    across = np.maximum(view.u2 - along, 0)
    cos = np.clip(U / np.sqrt(W * view.u2), -1, 1)
    S_v = 4 * D * W / nu**2
    S_x = S_v * (1 - cos**2) * np.exp(view.log_rest)
    tilt = 2 * np.sqrt(D * W) * cos / nu  # 2 kappa_v cos / nu, but for t / (1 - t²)
    factor = nu * wallace(nu) ** 2

    t = t[..., None]
    T, t2 = t / (1 - t**2), t**2
    rho_v = np.sqrt(S_v * T**2 + 1)  # axes from here on: query, R, weight, Zq
    rho_x = np.sqrt(S_x * T**2 + 1)
    even = rho_v - rho_x  # 2 (l(m) - l(x)) / nu, its part even in t
    rho_v += 1
    rho_x += 1
    rho_x /= rho_v
    even += np.log(rho_x, out=rho_x)
    even -= view.log_rest
    odd = (tilt * view.x) * T
    m = tilt * T
    m /= rho_v
    own = along * ((1 - t2) ** 2 / (1 + t2))
    own += across * (1 - t2)
    shrink = own / (own + t2 * (nu**2 / view.k))  # the fluctuation of |noise|² that is each competitor's own
    shrink *= factor
    p = _signed_root(even - odd, shrink, view.x - m)
    even += odd
    m += view.x
    p += _signed_root(even, shrink, m)
    return np.matmul(weights[..., None, :] / 2, p)[..., 0, :]


def _signed_root(drop: Array, shrink: Array, sign: Array) -> Array:
    np.maximum(drop, 0, out=drop)
    drop *= shrink
    np.sqrt(drop, out=drop)
    np.copysign(drop, sign, out=drop)
    return np.asarray(ndtr(drop, out=drop))
