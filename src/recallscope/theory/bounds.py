"""What is provably enough, what is provably needed, and how far apart the two are.

Johnson-Lindenstrauss guarantees (worst case), the dimension law (mean case), the information limit of any recurrent
state, and the dimensions asked by an earlier construction.

How uncorrelated code words can be: n unit vectors in R^d cannot all be orthogonal if n > d. Over all n² pairs, a vector
with itself among them, the mean of (x·y)² is at least 1/d (Welch), and that of (x·y)⁴ at least 3 / (d (d + 2))
(Sidelnikov). Tight frames reach the first; the second limits how rare close neighbours can be. Random tight frames have
the kurtosis of a sphere, 3 d* / (d* + 2); trained keys lie between that and the bound: they repel each other, and where
recall fails on the nearest key this counts (`results/theory/repeated_keys.md`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, ndtri, xlogy

from recallscope.theory.extremes import sqrt_two_log, success_integral
from recallscope.theory.problem import Array, Problem, probability, takes_fields

JL_CONSTANT = 4.0  # c of the corollary for one-hot vectors


class JLCondition(NamedTuple):
    """eps_v + eps_k + t eps_v eps_k, which must stay below 1/2, and the distortions behind it."""

    eps_v: Array
    eps_k: Array
    total: Array
    feasible: NDArray[np.bool_]


@takes_fields
def jl_condition(problem: Problem) -> JLCondition:
    """Is recall guaranteed for every context? Distortions sqrt(4 log V / D), sqrt(4 log V / N); t = 2 N_f (AR) or L.

    Paper: Lem 4.1 (`lem:jl-scaling-law`, `app-eq:jl-scaling-law-eps`).
    Departs: c = 4 is shown for unit columns of E with D >= 1 + 4 log V / eps²; for E~ = F E it is not (two consecutive
        maps need 9 c). With random filler from the whole vocabulary no dimensions make MQAR perfect (Thm 3.1).
    """
    eps_v, eps_k = (np.sqrt(JL_CONSTANT * np.log(problem.V) / d) for d in (problem.D, problem.N))
    total = eps_v + eps_k + _pairs(problem) * eps_v * eps_k
    return JLCondition(eps_v, eps_k, total, (eps_v < 1) & (eps_k < 1) & (total < 0.5))


@takes_fields
def jl_least_square(problem: Problem) -> tuple[Array, Array]:
    """Distortion and real dimension D = N at which Lem 4.1 turns feasible; D = N also minimises N D.

    Paper: Lem 4.1 (`lem:jl-scaling-law`).   In every experiment of the paper it asks for D > V.
    """
    t = _pairs(problem)
    eps = (np.sqrt(1 + t / 2) - 1) / t
    return eps, JL_CONSTANT * np.log(problem.V) / eps**2


@takes_fields
def jl_least_state(problem: Problem) -> Array:
    """Least real N (by symmetry: least D for that N) that Lem 4.1 accepts beside the given dimension; inf if none.

    Paper: Lem 4.1 (`lem:jl-scaling-law`).
    """
    log_V = np.log(problem.V)
    eps_v = np.sqrt(JL_CONSTANT * log_V / problem.D)
    eps_k = (0.5 - eps_v) / (1 + _pairs(problem) * eps_v)
    with np.errstate(divide="ignore"):
        return np.where(eps_k > 0, JL_CONSTANT * log_V / np.maximum(eps_k, 0) ** 2, np.inf)


def _pairs(problem: Problem) -> Array:
    """t, the pairs in the state at the last query."""
    return 2 * problem.N_f if problem.task == "ar" else problem.L


def least_dim_product(num_facts: ArrayLike, vocab_size: ArrayLike, fail_prob: float, *, printed: bool = False) -> Array:
    """N D that the large-context AR law asks for: N_f (sqrt(2 log V) + n_sigma)².

    Paper: Rem 4.4 (`rem:dim-scaling-law`, `app-eq:dim-scaling-law-ND`).
    Departs: `printed` uses n_sigma² = 2 log(1/delta), which is 9.21 at delta = 0.01 where the quantile gives 5.41. And
        it is what this circuit needs, not a lower bound for all circuits.
    """
    delta = probability("fail_prob", fail_prob)
    n_sigma = np.sqrt(2 * np.log(1 / delta)) if printed else ndtri(1 - delta)
    return np.asarray(num_facts, float) * (sqrt_two_log(vocab_size) + n_sigma) ** 2


def information_bits(
    num_facts: ArrayLike,
    vocab_size: ArrayLike,
    fail_prob: float,
    *,
    form: Literal["corrected", "printed"] = "corrected",
    values: Literal["independent", "distinct"] = "independent",
) -> Array:
    """Bits b S any recurrent state must hold to answer each query rightly with probability 1 - delta.

    Paper: Lem 4.5 (`lem:info-lower-bound`, `app-lem:info-lower-bound`).
    Departs: the success probability is per query, so Fano applies per value:
        H(v) - N_f [h(delta) + delta log2(V_v - 1)]. The print applies it to the block, (1 - delta) N_f log2 V_v - 1,
        which is too strong (71 against 56.02 bits at N_f = 16, V = 1024, delta = 1/2). `distinct` is the entropy of
        values drawn without repetition, as in the task.
    """
    delta = probability("fail_prob", fail_prob)
    N_f, V_v = np.broadcast_arrays(np.asarray(num_facts, float), np.asarray(vocab_size, float) / 2)
    if form == "printed":
        return (1 - delta) * N_f * np.log2(V_v) - 1
    if values == "distinct":
        entropy = (gammaln(V_v + 1) - gammaln(V_v - N_f + 1)) / np.log(2)
    else:
        entropy = N_f * np.log2(V_v)
    return np.maximum(entropy - N_f * _missing_bits(delta, V_v), 0)


def most_recall(bits: ArrayLike, num_facts: float, vocab_size: float) -> Array:
    """The largest success per query that so many bits allow: `information_bits` inverted, 1 once they are enough.

    Paper: Lem 4.5 (`lem:info-lower-bound`).
    """
    given = np.asarray(bits, float)
    chance = 2 / vocab_size
    p = np.concatenate([[chance], 1 - np.geomspace(1 - chance, 1e-9, 400)[1:]])
    needed = np.array([float(information_bits(num_facts, vocab_size, 1 - q, values="distinct")) for q in p])
    return np.interp(given, np.maximum.accumulate(needed), p)


def bits_per_entry(success: ArrayLike, vocab_size: ArrayLike) -> Array:
    """Recovered bits per useful state entry of the linear circuit at capacity (AR, many facts).

    Paper: sets Lem 4.5 (`lem:info-lower-bound`) against Thm 4.2 (`thm:prob-scaling-law`):
        eta = [log2 V_v - h(delta) - delta log2(V_v - 1)] / x², with x from the exact integral over V/2 - 1
        competitors. Bounded by 1/(2 ln 2) = 0.7213 as V grows. The model stores 2 N D entries of which the circuit
        reads N D.
    """
    p, V_v = np.broadcast_arrays(np.asarray(success, float), np.asarray(vocab_size, float) / 2)
    x = inverse_success_integral(p, V_v - 1)
    return (np.log2(V_v) - _missing_bits(1 - p, V_v)) / x**2


def inverse_success_integral(success: ArrayLike, competitors: ArrayLike) -> Array:
    """x with E[Phi(Z + x)^n] = p, by bisection to 1e-12; needs p > 1/(n + 1), else nan."""
    p, n = (np.array(a, float) for a in np.broadcast_arrays(np.asarray(success, float), np.asarray(competitors, float)))
    low, high = np.zeros(p.shape), np.full(p.shape, 40.0)
    for _ in range(60):
        middle = (low + high) / 2
        above = success_integral(middle, n) >= p
        low, high = np.where(above, low, middle), np.where(above, middle, high)
    return np.where((p > 1 / (n + 1)) & (p < 1), high, np.nan)


def huang_dims(vocab_size: ArrayLike) -> tuple[Array, Array]:
    """(D, N) of the construction that compresses values only: D ~ V_k + log V_v, N = V_k.

    Paper: App. J (`app:sim_and_diff_huang`). The constant before the logarithm is not given there; our 1 flatters it.
    """
    half = np.asarray(vocab_size, float) / 2
    return half + np.log(half), half


def _missing_bits(delta: ArrayLike, V_v: Array) -> Array:
    """Fano: h(delta) + delta log2(V_v - 1), the most one may not know about a value guessed with error delta."""
    d = np.asarray(delta, float)
    entropy = -(xlogy(d, d) + xlogy(1 - d, 1 - d)) / np.log(2)
    return entropy + d * np.log2(np.maximum(V_v - 1, 1))


# Codes

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
