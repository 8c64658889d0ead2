"""Laws for correlated keys: the tasks `template_ar` and `template_mqar`, keys of m tokens that share some of them.

A key is the sum of m codes, one per place and token, with length 1. A query for fact i reads sum_j w_ij v_j, and only
the weights matter: with c_j = w_ij / w_ii, SNR² = D / sum_j c_j² over the other facts. G is the keys' Gram matrix.

- A write gate that adds has W = G. With Gamma the population similarity of two keys, E G² = Gamma² + (1 - Gamma²)² / N,
  so addition recalls as with uncorrelated keys in N_eff dimensions, 1 / N_eff = E[Gamma² + (1 - Gamma²)² / N].
- The delta rule at rate b has W = b G (1 + b tril(G, -1))⁻¹, in the order of writing. (Proved.)
- Least squares has W = G G⁺ with keys of rank N: what any invertible map of the keys leaves unchanged. (Proved.)
- No matrix memory has sum_i h_i above the rank of the keys, h = w_ii² / sum_j w_ij². Keys that are sums of a row's and
  a column's code have the rank of their table at most: rows + columns in use, minus its connected parts. (Proved;
  scaling keys to length 1 changes no rank.)

The rivals are not alike: a stored fact with a similar key has a head start c_j. So contexts are sampled, codes drawn as
tight frames, the weights of every fact computed exactly, and the chance that its value wins is one integral over its
own noise z:

    E_z [F(x + z)^(V_v - n) prod_j Phi((1 - c_j) sqrt(D / (S - c_j²)) + z)],   S = sum_j c_j², x = sqrt(D / S),

F being the distribution of a word that was not stored. No constant is fitted; the draw is fixed. The laws hold for a
state that queries do not change. A delta rule that is trained to answer many queries per sequence learns to change it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import comb, gammaincc, log_ndtr

from recallscope.theory.domain import CORRELATED
from recallscope.theory.extremes import success_integral
from recallscope.theory.law import Law
from recallscope.theory.laws.matrix_memory import key_rank, tight_codes
from recallscope.theory.laws.sharing import num_keys, queries, recall_given_variances, star_dimensions
from recallscope.theory.problem import TEMPLATES, Array, Problem, takes_fields
from recallscope.theory.quadrature import sphere_coordinate_cdf

Memory = Literal["addition", "delta", "least-squares"]
FACTS, QUERIES, FEWEST = 2048, 64, 8  # facts asked in all, in one context at most, and contexts at least
POOL = 4096  # words of a frame of codes: more make no difference
MOST = {"num_facts": 512, "state_dim": 512, "key_tokens": 64, "rows + columns": 4096}  # a few seconds of work
SEARCH = 4  # the best rate is looked for in one of so many contexts
RATES = np.geomspace(0.02, 1, 14)
RANKS, TURNS, SEED = 64, 12, 0  # contexts behind a mean rank, turns of making a frame tight, owner of all draws
RIDGE = 1e-8
LEAST = 1e-12  # noise over the signal
Z = np.arange(-6.0, 6.01, 0.25)
Z_WEIGHTS = np.exp(-(Z**2) / 2) / np.exp(-(Z**2) / 2).sum()


@takes_fields
def similarities(problem: Problem) -> tuple[Array, Array]:
    """Gamma, the population similarities that two keys of a context can have, and how likely each is."""
    m, rho, rows, columns = (getattr(problem, name) for name in ("key_tokens", "rho", "rows", "columns"))
    _check_sizes({"key_tokens": m})
    if rows:
        alike = (rows + columns - 2) / max(rows * columns - 1, 1)
        return np.array([0.0, 0.5]), np.array([1 - alike, alike])
    places = np.arange(m)  # that both share: any but their own, each with chance rho²
    trials = np.array([[m - 1], [max(m - 2, 0)]])
    same, other = comb(trials, places) * rho ** (2 * places) * (1 - rho**2) ** np.maximum(trials - places, 0)
    return places / m, same / m + other * (1 - 1 / m)


@takes_fields
def effective_dimension(problem: Problem) -> Array:
    """N_eff, the dimensions in which uncorrelated keys would interfere as much: SNR² = N_eff D / n."""
    gamma, chance = similarities(problem)
    v_N = tight_codes(problem)[0]
    return np.asarray(1 / (chance @ gamma**2 + (chance @ (1 - gamma**2) ** 2) * v_N))


@takes_fields
def effective_law(problem: Problem) -> Array:
    """Probability that addition with a write gate answers correctly: as with uncorrelated keys in N_eff dimensions.

    Paper: Rem F.3 (`app-rem:key-value-selectivity`), N D / N_kv, with N_eff for N.
    """
    plain = _plain(problem)
    _, v_D = tight_codes(problem)
    return recall_given_variances(plain, key_variance=1 / effective_dimension(problem), value_variance=v_D, leak=0.0)


@takes_fields
def template_rank_law(problem: Problem) -> Array:
    """Recall of a matrix memory that reaches the rank bound with the rank of these keys, equally for every fact.

    Paper: beside Lem 4.5 (`lem:info-lower-bound`), which bounds any state by its bits.
    """
    h = np.minimum(np.minimum(key_rank(problem), table_rank(problem)) / problem.N_f, 1)
    x = np.sqrt(value_dimension(problem) * h / np.maximum(1 - h, LEAST))
    return success_integral(x, problem.V - num_keys(problem.V) - 1)


@takes_fields
def table_rank(problem: Problem) -> Array:
    """Mean rank of the keys of a context where N does not limit it: N_f, but for the cells of a table."""
    if not problem.rows:
        return problem.N_f
    _check_sizes({"num_facts": problem.N_f.max(), "rows + columns": problem.rows + problem.columns})
    found = np.empty(problem.shape)
    for index, n in np.ndenumerate(problem.N_f):
        cells = _contexts(problem, int(n), problem.rows + problem.columns, RANKS)
        features = np.eye(problem.rows + problem.columns)[cells].sum(axis=2)  # of places that do not share tokens
        found[index] = np.mean(np.linalg.matrix_rank(features))
    return found


@takes_fields
def template_law(problem: Problem, *, memory: Memory = "delta", b: float | None = None, top_k: int = 1) -> Array:
    """Probability that a memory answers correctly, from exact weights in sampled contexts.

    The delta rule is taken at rate `b`, by default the best one.

    Paper: none; Thm 4.2 (`thm:prob-scaling-law`) is the same for uncorrelated keys.
    Holds for: a write gate or a rate that is shut at all tokens but the values, and a state that queries leave alone.
    """
    return _over_cells(problem, lambda keys, D, V_v: _memory_recall(keys, D, V_v, memory, b, top_k)[0])


@takes_fields
def template_rate(problem: Problem) -> Array:
    """The rate b of the delta rule with the largest recall, to 35%; 0 where correcting does not pay."""
    return _over_cells(problem, lambda keys, D, V_v: _memory_recall(keys, D, V_v, "delta", None)[1])


@takes_fields
def delta_slope(problem: Problem) -> Array:
    """Slope of the mean log SNR² at rate 0 of the delta rule: how much correcting pays. 1 - 1/N for random keys."""
    return _over_cells(problem, lambda keys, D, V_v: _slope(keys))


def weights(keys: Array, memory: Memory, b: float = 0.0) -> Array:
    """W, (contexts, asked fact, stored fact), of keys (contexts, facts in the order of writing, N)."""
    G = keys @ keys.swapaxes(-1, -2)
    one = np.eye(G.shape[-1])
    if memory == "least-squares":
        return np.asarray(np.linalg.solve(G + RIDGE * one, G))
    if memory == "addition" or b == 0:
        return G
    return np.asarray(b * np.linalg.solve(one + b * np.triu(G, 1), G).swapaxes(-1, -2))


def _slope(keys: Array) -> float:
    """Of the weights G - b G tril(G, -1), which are those of `weights` to first order in b, over the rate."""
    G = keys @ keys.swapaxes(-1, -2)
    change, others = G @ np.tril(G, -1), G * (1 - np.eye(G.shape[-1]))
    noise = np.maximum((others**2).sum(-1), LEAST)
    own = np.diagonal(change, axis1=-2, axis2=-1)
    return float(np.mean(2 * (others * change).sum(-1) / noise - 2 * own))


def _memory_recall(
    keys: Array, D: float, V_v: float, memory: Memory, b: float | None, k: int = 1
) -> tuple[float, float]:
    """Mean recall over the contexts, and the rate: the one given, or the best."""

    def recall(rate: float, every: int = 1) -> float:
        return _recall(weights(keys[::every], memory, rate), D, V_v, k)

    if memory != "delta" or b is not None:
        return recall(b or 0.0), b or 0.0
    best = max((0.0, *RATES), key=lambda rate: recall(rate, SEARCH))
    return recall(best), best


def _recall(W: Array, D: float, V_v: float, k: int = 1) -> float:
    """Mean probability that the right value has one of the k largest logits, over contexts and queried facts."""
    n = W.shape[-1]
    asked = np.unique(np.linspace(0, n - 1, min(n, QUERIES)).round().astype(int))
    W = W[:, asked]
    own = W[:, np.arange(len(asked)), asked][..., None]
    right = own[..., 0] > 0
    c = np.where(own > 0, W / np.where(own > 0, own, 1), 0)
    c[:, np.arange(len(asked)), asked] = 0
    S = np.maximum((c**2).sum(-1, keepdims=True), LEAST)
    lead = (1 - c) * np.sqrt(D / np.maximum(S - c**2, LEAST))
    lead[:, np.arange(len(asked)), asked] = np.inf
    y = np.sqrt(D / S) + Z
    log_p = (V_v - n) * np.log(np.maximum(sphere_coordinate_cdf(y / np.sqrt(D - 1 + y**2), D), 1e-300))
    for rival in range(n):
        log_p += log_ndtr(lead[..., rival, None] + Z)
    p = np.where(right, gammaincc(k, -log_p) @ Z_WEIGHTS, 0)  # a Poisson number of others exceeds it
    return float(np.clip(p.mean(), k / V_v, 1))


def _over_cells(problem: Problem, function: Callable[[Array, float, float], float]) -> Array:
    """A function of keys, D and V_v in every cell; of keys with N between two whole numbers it is interpolated."""
    queries(_plain(problem))  # which checks the sizes
    D_star, rank, V_k = value_dimension(problem), key_rank(problem), num_keys(problem.V)
    _check_sizes({"num_facts": problem.N_f.max(), "state_dim": rank.max(), "key_tokens": problem.key_tokens,
                  "rows + columns": problem.rows + problem.columns})  # fmt: skip
    found = np.empty(problem.shape)
    for index in np.ndindex(problem.shape):
        n, N, words, D = int(problem.N_f[index]), float(rank[index]), int(V_k[index]), float(D_star[index])
        low, part = int(N), N % 1
        ends = [function(_keys(problem, n, dim, words), D, words) for dim in ((low, low + 1) if part else (low,))]
        found[index] = ends[0] + part * (ends[-1] - ends[0])
    return found


def _check_sizes(sizes: Mapping[str, float]) -> None:
    """Refuse sizes that would take minutes, or more memory than there is."""
    for name, size in sizes.items():
        if size > MOST[name]:
            raise ValueError(f"{name}={size:g}: this law of correlated keys is computed up to {MOST[name]:,}.")


def value_dimension(problem: Problem) -> Array:
    """D*, one over the mean square of two values' product; values are a tight frame."""
    v_D = tight_codes(problem)[1]
    return star_dimensions(np.ones_like(v_D), v_D)[1]


def _keys(problem: Problem, n: int, dim: int, words: int) -> Array:
    """Keys of sampled contexts: sums over places of codes from tight frames, of length 1."""
    pool = min(words, max(POOL, problem.key_tokens * (n + 1)))
    drawn = _contexts(problem, n, pool, max(FEWEST, FACTS // n))
    keys = sum(_frame(pool, dim, place)[drawn[..., place]] for place in range(drawn.shape[-1]))
    return np.asarray(keys / np.maximum(np.linalg.norm(keys, axis=-1, keepdims=True), LEAST))  # 0 if codes cancel


def _contexts(problem: Problem, n: int, words: int, count: int) -> NDArray[np.int64]:
    """Words of the keys of some contexts, (context, fact, place), as the tasks draw them."""
    rng = np.random.default_rng(SEED)
    m, rows, columns = problem.key_tokens, problem.rows, problem.columns
    tokens = np.stack([rng.permutation(words)[: rows + columns or m * (n + 1)] for _ in range(count)])
    if rows:
        cells = np.stack([rng.permutation(rows * columns)[:n] for _ in range(count)])
        return np.take_along_axis(tokens[:, None], np.stack((cells // columns, rows + cells % columns), -1), axis=-1)
    shared = rng.random((count, n, m)) < problem.rho
    shared[np.arange(count)[:, None], np.arange(n), rng.integers(m, size=(count, n))] = False
    return np.where(shared, tokens[:, None, :m], tokens[:, m:].reshape(count, n, m))


@cache
def _frame(words: int, dim: int, place: int) -> Array:
    """A tight frame, one row of length 1 per word: made tight and normalised in turn."""
    frame = np.random.default_rng([SEED, place]).standard_normal((words, dim))
    for _ in range(TURNS if dim < words else 1):
        values, vectors = np.linalg.eigh(frame.T @ frame)
        frame = frame @ (vectors / np.sqrt(np.maximum(values, LEAST))) @ vectors.T
        frame /= np.linalg.norm(frame, axis=1, keepdims=True)
    return frame


def _plain(problem: Problem) -> Problem:
    """The same sizes with uncorrelated keys, asked once."""
    return problem.replace(task="ar", length=None)


GATED = "one minimal layer with one head that writes facts only, windows of m + 1 tokens; queries leave the state alone"
PAGE = "(results/theory/template_monte_carlo.md)"
_TEMPLATE: Any = {
    "status": "approximate",
    "layers": "one",
    "tasks": TEMPLATES,
    "reference": "ours",
    "compared": CORRELATED,
}
LAWS = [
    Law(
        "template-addition",
        template_law,
        top_k=True,
        models=("mlstm",),
        summary="correlated keys, a write gate that adds",
        holds=GATED,
        support=f"mean absolute error 0.017 (max 0.04) for memories with random codes {PAGE}",
        options={"memory": "addition"},
        **_TEMPLATE,
    ),
    Law(
        "template-delta",
        template_law,
        top_k=True,
        models=("delta_net", "gated_delta_net", "kda"),
        summary="correlated keys, the delta rule at its best rate b",
        holds=GATED,
        support=f"mean absolute error 0.007 to 0.017 (max 0.04) for random codes and b = 0.05 to 0.4 {PAGE}",
        **_TEMPLATE,
    ),
    Law(
        "template-least-squares",
        template_law,
        top_k=True,
        models=("mesa_net",),
        summary="correlated keys, the least-squares answer: correlations cost nothing up to the rank of the keys",
        holds=GATED,
        support=f"mean absolute error 0.007 (max 0.02) for memories with random codes {PAGE}",
        options={"memory": "least-squares"},
        **_TEMPLATE,
    ),
    Law(
        "template-effective",
        effective_law,
        models=("mlstm",),
        holds=GATED,
        support=f"mean absolute error 0.025 (max 0.06) for memories with random codes {PAGE}",
        summary="correlated keys, addition: SNR² = N_eff D / n, 1 / N_eff = E[Gamma² + (1 - Gamma²)² / N]",
        **_TEMPLATE,
    ),
    Law(
        "template-rank",
        template_rank_law,
        models=(),
        summary="correlated keys, a ceiling: no matrix memory has more than SNR² = R D / (N_f - R), R their rank",
        holds="a bound on the mean of h; assumes that equal h are best and that no competitor has a head start",
        support="loose: no memory with random codes exceeds it, and least squares is 0.1 below it at N = N_f, 0.4 at "
        f"N_f = 4 N {PAGE}",
        **_TEMPLATE,
    ),
]
