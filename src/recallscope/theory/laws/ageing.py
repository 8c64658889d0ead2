"""Laws of matrix memories in which facts age: a state that fades (RetNet), and one that is corrected (the delta rule).

In both, the weight of a fact depends on how many writes came after it, and the noise it meets as well. The gated law
and the sharing law become laws by slot and age: the noise grows by a factor f over that of equal weights, and with it
the weight of every wrong fact. Recall then is that of the law without ageing plus what ageing changes, which is
smooth, and taken with few nodes over the ages of the facts.

**Fading.** With S <- gamma S + k vᵀ a pair written at t_j disturbs a fact written at t_i by gamma^(t_i - t_j): what
came later is louder. f is the mean of gamma^(2 (t_i - t_j)) over the noise pairs. (Derived. That all wrong facts then
weigh alike is assumed.) As facts are asked in any order and filler comes last, gamma < 1 only loses.

**The delta rule**, S <- S (I - b k kᵀ) + b v kᵀ, takes from S what it would answer before it writes. Isotropic unit
keys, n writes, m of them after the fact's: with rho = 1 - b (2 - b) / N and q = 1 - 2 b / N + 2 b² / (N (N + 2)),

    E a = b (1 - b/N)^m        E a² = b² s_m,   s_m = ((N - 1) q^m + rho^m) / N
    E sum w² = b / (2 - b) [1 - rho^m + (1 - rho^(n-m-1)) (rho^m - b (2 - b) s_m)].

(Exact for isotropic keys, since each write multiplies these moments by a number; that N* of a tight frame takes the
place of N, and 4 Var(a) / a² adds to the spread of the noise, are approximations.) To first order in b, the mean over
facts of log SNR² rises by b (1 - 1/N) in AR, and in MQAR by b ((N_f - 1) / n - (1 + e) / N), e being pairs from the
filler: where N is small against N_f, the best delta rule is b = 0, and no better than the write gate it has. The law
takes the best b of all, as training does on MQAR.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from recallscope.theory.domain import MEMORIES
from recallscope.theory.extremes import max_moments
from recallscope.theory.law import Law
from recallscope.theory.laws.matrix_memory import MINIMAL, gated_law, tight_codes
from recallscope.theory.laws.sharing import (
    Queries,
    mean_recall,
    noise_power,
    queries,
    sharing_codes,
    sharing_law,
    star_dimensions,
)
from recallscope.theory.problem import Array, Problem, takes_fields
from recallscope.theory.quadrature import slot_rule

RETNET = 31 / 32  # gamma of the first head
LEAST_RATE = 1e-6  # of the delta rule: as good as none
RATES = np.concatenate([[LEAST_RATE], np.geomspace(0.005, 1, 32)])
SLOTS, AGES, ALL_AGES = 2, 3, 16  # nodes over query slots, after the first, and over the ages of facts
SURE = 1 - 1e-6  # recall that no correction improves
LEAST_SPREAD, MOST_SPREAD = 1e-3, 1.0  # of the noise power: beyond, a Gamma law has its mode at no noise
LOUDEST = 1e9  # noise over one fact's, where a state has faded away

Codes = tuple[Array, Array, Array]  # key variance, value variance, leak
AgedNoise = Callable[[Queries, Array, Array, Array, Array], tuple[Array, Array]]


class DeltaMoments(NamedTuple):
    """What a query reads after some writes of the delta rule, over isotropic unit keys."""

    amplitude: Array  # E a, of the fact's own value
    mean_square: Array  # E a²
    interference: Array  # E sum of w², over all other writes


def delta_moments(dim: ArrayLike, rate: ArrayLike, writes: ArrayLike, later: ArrayLike | None = None) -> DeltaMoments:
    """Moments for keys in `dim` dimensions, rate b, n writes, `later` of them after the fact's: 0 .. n-1 if None."""
    N, b, n = (np.asarray(array, float) for array in (dim, rate, writes))
    m = np.arange(float(n)) if later is None else np.asarray(later, float)
    u = b * (2 - b)
    log_rho = np.log1p(-np.minimum(u / N, 1 - 1e-15))
    rho_m, q = np.exp(m * log_rho), np.maximum(1 - 2 * b / N + 2 * b**2 / (N * (N + 2)), 0)  # below 0 for N = 1
    s = ((N - 1) * q**m + rho_m) / N
    lost, before = -np.expm1(m * log_rho), -np.expm1((n - m - 1) * log_rho)
    return DeltaMoments(b * (1 - b / N) ** m, b**2 * s, b / (2 - b) * (lost + before * (rho_m - u * s)))


@takes_fields
def delta_law(problem: Problem, *, b: ArrayLike | None = None, slot_nodes: int | None = None, **nodes: int) -> Array:
    """Chance that a delta rule answers a query rightly: at rate `b`, or at the best one (see `delta_rate`).

    Paper: none; it asks the question of Thm 4.2 (`thm:prob-scaling-law`) of another memory.
    Holds for: unit keys, and a rate that is high for (key, value) pairs and 0 for others. Forget gates end at 1. At a
        given b = .2 it is up to .06 too high, at b = 1 up to .1 (results/theory/memories_monte_carlo.md): recent facts
        disturb more than old ones, and it takes the mean. At the best b, which is smaller, within .02.
    """
    rate = delta_rate(problem) if b is None else np.broadcast_to(np.asarray(b, float), problem.shape)
    if np.any((rate <= 0) | (rate > 1)):
        raise ValueError(f"b={np.asarray(b)}: the rate of a delta rule lies above 0, where it writes, and up to 1.")
    base = gated_law(problem, slot_nodes=slot_nodes, **nodes)
    some = (rate > LEAST_RATE) & ((base < SURE) | (b is not None))
    codes = (*tight_codes(problem), np.zeros(problem.shape))
    ages = AGES if b is None else ALL_AGES  # at a high rate recall bends with age
    return _aged(problem, base, some, codes, _delta_noise, rate, ages, slot_nodes or SLOTS, **nodes)


@takes_fields
def delta_rate(problem: Problem) -> Array:
    """The rate b with the largest mean recall, to 20 %, over slots and ages; 1e-6 where correcting does not pay.

    Competitors count as random directions here, all alike: recall is flat around the best rate.
    """
    asked, place = _ages(queries(problem, slot_nodes=SLOTS))
    N_star, D_star, _ = star_dimensions(*(v.reshape(-1, 1) for v in tight_codes(problem)))
    rivals, which = np.unique(asked.V_v[:, 0] - 1, return_inverse=True)
    level, variance = (moment[which][:, None] for moment in max_moments(rivals))
    best, found = np.full(len(place), -1.0), np.full(len(place), LEAST_RATE)
    for b in RATES:
        n, _ = _delta_noise(asked, place, N_star, 0.0, b)
        z = np.sqrt(D_star * np.log1p(N_star / np.maximum(n, 1e-9)))  # the right word's cosine, as a normal quantile
        mean = np.sum(asked.weights * ndtr((z - level) / np.sqrt(1 + variance)), axis=-1)
        better = mean > best + 1e-6
        best, found = np.where(better, mean, best), np.where(better, b, found)
    return found.reshape(problem.shape)


def _delta_noise(asked: Queries, place: Array, N_star: Array, lam: Array | float, b: ArrayLike) -> tuple[Array, Array]:
    """Noise pairs, counted in facts, and the spread of their power, for facts at these places of the context."""
    a, square, w = delta_moments(N_star, b, asked.kv, asked.kv - 1 - place)
    a = np.maximum(a, 1e-100)
    spread = noise_power(asked, N_star, lam)[1] + 4 * np.maximum(square / a**2 - 1, 0)
    return np.minimum(N_star * w / a**2, LOUDEST), spread


@takes_fields
def retention_law(problem: Problem, *, gamma: float = RETNET) -> Array:
    """Chance that a linear layer whose state fades by gamma per token answers a query rightly.

    Paper: Thm 4.2 (`thm:prob-scaling-law`) has gamma = 1.
    Holds for: gamma near 1; the weight of the wrong facts, old or recent, is taken as the same.
    """
    if not 0 < gamma <= 1:
        raise ValueError(f"gamma={gamma}: the share of the state that a token leaves lies above 0, up to 1.")
    codes = sharing_codes(problem)
    variances = (codes.key_variance, codes.value_variance, codes.leak)
    some, rate = np.full(problem.shape, gamma < 1), np.full(problem.shape, gamma)
    return _aged(problem, sharing_law(problem), some, variances, _faded_noise, rate, AGES, SLOTS)


def _faded_noise(asked: Queries, place: Array, N_star: Array, lam: Array, gamma: Array) -> tuple[Array, Array]:
    """As `_delta_noise`: sums of gamma^(2 (t_i - t_j)), with t = 2 i + 1 for the facts, and filler in the g slots."""

    def sums(power: int) -> tuple[Array, Array, Array]:
        """Of (key, value) and (value, key) pairs, and the mean over the filler."""
        c = -2 * power * np.log(gamma)
        facts = np.exp(-c * place) * np.expm1(c * asked.N_f) / np.expm1(c)
        g = np.maximum(asked.g, 1)
        filler = np.exp(c * (asked.N_f - place)) * np.expm1(c * g) / np.expm1(c) / g
        kv = facts - 1 + asked.extra * filler
        return kv, np.exp(c / 2) * (facts + (asked.vk - asked.N_f) * filler), filler

    with np.errstate(over="ignore"):
        kv, vk, filler = sums(2)
        n = np.minimum(kv + vk * lam + 2 * np.sqrt(asked.kk * asked.vv * lam) * filler, LOUDEST)
        kv, vk, _ = np.minimum(sums(4), LOUDEST**2)
    h = 2 * np.maximum(N_star - 1, 0) / (N_star + 2)
    return n, (h * (kv + 2 * asked.extra + vk * lam**2) + asked.extra / 2) / np.where(n > 0, n, 1) ** 2


def _ages(asked: Queries, count: int = AGES) -> tuple[Queries, Array]:
    """Every query once for each of some places of its fact, 0 the oldest, and these."""
    place, weights = slot_rule(asked.N_f[:, 0], count)
    return asked.each(weights), np.tile(place, asked.weights.shape[-1])


def _aged(
    problem: Problem,
    base: Array,
    some: NDArray[np.bool_],
    variances: Codes,
    noise: AgedNoise,
    rate: Array,
    ages: int,
    slots: int,
    **nodes: Any,
) -> Array:
    """The law without ageing, `base`, and what ageing at a rate changes in `some` cells, by this many nodes."""
    p = np.array(base)
    if not np.any(some):
        return p
    asked = queries(problem.take(some), slot_nodes=slots)
    N_star, D_star, lam = star_dimensions(*(v[some].reshape(-1, 1) for v in variances))
    plain, spread = noise_power(asked, N_star, lam)
    change = -mean_recall(asked, N_star, D_star, plain, spread, **nodes)
    asked, place = _ages(asked, ages)
    plain, (n, spread) = noise_power(asked, N_star, lam)[0], noise(asked, place, N_star, lam, rate[some].reshape(-1, 1))
    own = N_star * np.where(n > 0, plain / np.where(n > 0, n, 1), 1)  # wrong facts weigh as much more as all pairs do
    spread = np.clip(spread, LEAST_SPREAD, MOST_SPREAD)
    change += mean_recall(asked, N_star, D_star, n, spread, weight_dim=own, **nodes)
    p[some] = np.clip(p[some] + change, 1 / asked.V_v[:, 0], 1)
    return p


_MEMORY: Any = {"status": "approximate", "layers": "one", "compared": MEMORIES, "holds": MINIMAL, "reference": "ours"}
LAWS = [
    Law(
        "delta",
        delta_law,
        top_k=True,
        summary="the delta rule at its best rate b, by slot and age",
        models=("delta_net", "gated_delta_net", "kda", "gated_delta_net2", "comba", "delta_product"),
        with_templates="template-delta",
        support="minimal DeltaNet and KDA are .01 off on average, at most .02; Gated DeltaNet .03 and .05 after 2000 "
        "steps (docs/ARCHITECTURE_COMPARISON.md), .005 and .015 after 8000",
        **_MEMORY,
    ),
    Law(
        "retention",
        retention_law,
        summary="trained-sharing with a state that fades by a fixed gamma per token, 31/32 unless given",
        models=("retnet",),
        support="minimal RetNet is .012 off on average, at most .03 (docs/ARCHITECTURE_COMPARISON.md)",
        **_MEMORY,
    ),
]
