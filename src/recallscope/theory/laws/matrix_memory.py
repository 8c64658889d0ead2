"""Laws of memories that are one matrix S = sum of v uᵀ, beyond the linear layer: gated, least squares, and a ceiling.

A query reads a e_v + sum_j w_j e_j: its own value with weight a, all others with small ones. Values are words of a
tight frame in D dimensions, so only the weights matter: SNR² = D a² / sum_j w_j². What an update rule can do is make
the weights w_j small.

- A write gate stores (key, value) neighbours and nothing else. No (value, key) pair leaks, so values need not keep
  clear of the keys, and SNR² = N D / n: the sharing law without its price of N/2 out of D. Filler behind a query looks
  like a fact and cannot be gated away, so n = N_f - 1 + g/2 at slot g. (Derived. That the gate's direction costs the
  values no dimension is assumed: a gate saturated at 1 costs none, one held on its flank costs one; accuracies speak
  for none.)
- Least squares reads with the inverse of the Gram matrix of the keys, the best there is for given keys:
  SNR² = N D / (n - N), and all of N_f <= N facts are exact. (Derived for keys in general position.)
- A router that sends every key to one of B memories leaves n / B facts in each: SNR² = B N D / n.
- No update rule does better. The weights of N_f facts form a matrix of rank N at most; with its rows normalised, the
  diagonal entries h_i = a² / (a² + sum w²) sum to at most N, because each is at most the length of e_i projected on the
  row space. SNR² = D h / (1 - h), and least squares has the mean h of that bound. (Proved, for one head whose channels
  share keys, queries and gates, and linear in the values. That equal h_i are best, and the step from SNR to recall, are
  assumed as for all laws here.) A Hebbian memory has h = N / (N + n - 1): error correction buys about N facts.

Codes are tight frames: of rank min(N, D) for keys, D for values. No constant is fitted. `nodes` of a law are those of
`recall_given_variances`, for tests of the quadrature.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from recallscope.theory.domain import MEMORIES, ROUTED, TRAINED_MEMORIES, Domain
from recallscope.theory.law import Law
from recallscope.theory.laws.sharing import (
    mean_recall,
    num_keys,
    queries,
    recall_given_variances,
    star_dimensions,
    tight_variance,
)
from recallscope.theory.problem import PLAIN, TEMPLATES, Array, Problem, takes_fields

MINIMAL = "one minimal layer with one head: windows of two tokens, no norm, no output gate"


def key_rank(problem: Problem) -> Array:
    """Dimensions that the key code uses: no more than the embedding has, or keys there are."""
    return np.minimum(np.minimum(problem.N, problem.D), num_keys(problem.V))


def tight_codes(problem: Problem) -> tuple[Array, Array]:
    """Mean squares off the diagonal, v_N and v_D, of tight frames that share nothing."""
    V_k = num_keys(problem.V)
    return tight_variance(1 / key_rank(problem), V_k), tight_variance(1 / problem.D, problem.V - V_k)


@takes_fields
def gated_law(problem: Problem, **nodes: int | None) -> Array:
    """Probability that a memory with a write gate (mLSTM, Mamba-2-like) answers a query correctly.

    Paper: Rem F.3 (`app-rem:key-value-selectivity`), N D / N_kv, which a linear layer does not reach.
    Holds for: a gate that depends on both tokens of a pair. Training leaves forgetting unused, as it should: facts are
        queried in any order, and filler comes last.
    """
    v_N, v_D = tight_codes(problem)
    return recall_given_variances(problem, key_variance=v_N, value_variance=v_D, leak=0.0, **nodes)


@takes_fields
def least_squares_law(problem: Problem, *, slot_nodes: int | None = None, **nodes: Any) -> Array:
    """Probability that a memory read by least squares answers a query correctly (MesaNet, recursive least squares).

    1 / (kᵀ (sum of k kᵀ)⁻¹ k) - 1 is the noise over the signal. With c_j writes of key j, one or, where filler came
    after its query, two, the inverse is that of a random Gram matrix: sum_j c_j t / (1 + c_j t) = N (1 - 1/N_f) over
    the other keys gives t, and n_eff = N / t; without filler n_eff = N_f - N. The state is N D numbers and N (N + 1) /
    2 more.

    Paper: none; Thm 4.2 (`thm:prob-scaling-law`) is the same for another memory.
    Holds for: L = 4 N_f, where filler repeats keys of the context; and a small ridge.
    """
    asked = queries(problem, slot_nodes=slot_nodes)
    N_star, D_star, _ = star_dimensions(*(v.reshape(-1, 1) for v in tight_codes(problem)))
    N_f, again = asked.N_f, asked.extra
    several = N_f > 1
    K = np.where(several, N_star * (1 - 1 / N_f), 1)
    a, b = 2 * np.maximum(N_f - 1 - K, 0), N_f - 1 + again - 3 * K
    n = np.where(several, N_star * (b + np.sqrt(b**2 + 4 * a * K)) / (2 * K), 0)  # N / t, of the quadratic for 1 / t
    left = N_f - key_rank(problem).reshape(-1, 1)
    h = 2 * np.maximum(N_star - 1, 0) / (N_star + 2)
    n, spread = np.where(left > 0, n, 0), h / np.where(left > 0, left, 1)
    return mean_recall(asked, N_star, D_star, n, spread, **nodes).reshape(problem.shape)


@takes_fields
def rank_bound(problem: Problem, **nodes: int | None) -> Array:
    """Recall of a matrix memory that reaches the rank bound, without interference from filler: least squares in AR.

    Paper: beside Lem 4.5 (`lem:info-lower-bound`), which bounds any state by its bits.
    """
    return least_squares_law(problem.replace(task="ar", length=None), **nodes)


@takes_fields
def routed_law(problem: Problem, *, memories: int = 4, **nodes: int | None) -> Array:
    """Probability that a router's choice among B memories, made by the key, answers a query correctly.

    Only facts in the same memory interfere. Each of the n other facts is there with probability 1/B, independently, so
    that on average SNR² = B N D / n. Their number is binomial, which costs recall: some memories are fuller.

    Paper: none; two banks of channels (`full-bank`) are the case B = 2.
    Holds for: as many keys for each memory, N + B - 1 <= D, so that the key's code and its route both fit into the
        embedding, and a write gate.
    """
    V_k = num_keys(problem.V)
    v_N = tight_variance(1 / np.minimum(key_rank(problem), V_k / memories), V_k / memories)
    variances = {"key_variance": v_N, "value_variance": tight_codes(problem)[1]}
    return recall_given_variances(problem, **variances, leak=0.0, theta=1 / memories, **nodes)


@takes_fields
def softmax_law(problem: Problem) -> Array:
    """Recall of softmax attention whose scale is free to grow: the nearest key takes all the weight.

    Paper: none; the reference that keeps everything.
    """
    return np.ones(problem.shape)


_MEMORY: Any = {"status": "approximate", "layers": "one", "compared": MEMORIES}
LAWS = [
    Law(
        "gated",
        gated_law,
        top_k=True,
        summary="a write gate stores only facts: SNR² = N D / n",
        reference="ours; Rem F.3 with a gate",
        models=("mlstm", "mamba3"),
        with_templates="template-addition",
        holds=MINIMAL,
        support="mean absolute error 0.011 (max 0.03) for minimal mLSTM, the same for memories with random codes, "
        "0.004 (max 0.012) for Mamba-3",
        **_MEMORY,
    ),
    Law(
        "least-squares",
        least_squares_law,
        top_k=True,
        summary="the least-squares answer: SNR² = N D / (n - N), exact for N_f <= N",
        reference="ours",
        models=("mesa_net",),
        with_templates="template-least-squares",
        holds=MINIMAL,
        support="mean absolute error 0.005 (max 0.02) for minimal MesaNet, 0.01 (max 0.025) at settings trained after "
        "the law, 0.01 (max 0.05) for memories with random codes",
        domain=Domain("L = 4 N_f"),
        **_MEMORY,
    ),
    Law(
        "routed",
        routed_law,
        summary="B routed memories (default: 4): SNR² = B N D / n, with a binomial number of facts in each",
        reference="ours",
        models=("routed_memory",),
        holds=f"N + B - 1 <= D, {MINIMAL}",
        support="mean absolute error 0.006 (max 0.02) for four minimal routed memories; at D = 16, N = 4 seeds with "
        "four and eight memories are up to 0.15 below it (docs/PREDICTIONS.md)",
        **(_MEMORY | {"compared": (*TRAINED_MEMORIES, *ROUTED)}),
    ),
    Law(
        "rank-bound",
        rank_bound,
        summary="a ceiling: no matrix memory with one head has more than SNR² = N D / (N_f - N)",
        reference="ours",
        models=(),
        holds="any update that is linear in the values, one head; a bound on the mean of h, not on recall itself",
        support="no memory, trained or with random codes, exceeds it by more than 0.02",
        **_MEMORY,
    ),
    Law(
        "softmax",
        softmax_law,
        summary="distinct keys are never confused: recall is 1, with a memory of (N + D) t entries",
        reference="exact reference",
        models=("attention",),
        status="exact",
        layers="one",
        tasks=(*PLAIN, *TEMPLATES),
        compared=TRAINED_MEMORIES,
        holds=f"N >= 5, {MINIMAL}",
        domain=Domain("N >= 5"),
        support="minimal attention is above 0.999 for N >= 8; for N <= 4 training does not get there",
    ),
]
