"""The recall law of a trained linear layer: keys and values share the D dimensions of one embedding.

A trained layer answers a query with two kernels, one that matches keys (rank N) and one that reads values
out. Both are Gram matrices of codes inside the same D dimensions. Training drives each code to a tight frame,
the least noisy there is, and then one question is left: how much of the value code may lie in the N
dimensions of the keys? Whatever lies there mistakes (value, key) neighbours for facts; keeping values out
squeezes them into D - N dimensions. At the best share the signal-to-noise ratio is

    SNR² = N (D - N/2) / n        n noise pairs; it would be N D / n if sharing cost nothing.

(Key, key) neighbours cost nothing, because keys may be made short. No constant is fitted to trained models.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from recallscope.theory.domain import Domain
from recallscope.theory.law import law
from recallscope.theory.laws.sharing_frames import (
    PairCounts,
    SharingCodes,
    check,
    counts,
    dimensions,
    key_chance,
    num_keys,
    pair_counts,
    sharing_codes,
)
from recallscope.theory.laws.sharing_step import SIGN_CODE, Noise, win_probability
from recallscope.theory.problem import Array, Problem, takes_words
from recallscope.theory.quadrature import Rule, golub_welsch

__all__ = ["PairCounts", "SharingCodes", "pair_counts", "recall_given_variances", "sharing_codes", "sharing_law"]


@law(
    name="trained-sharing",
    summary="keys and values share the D dimensions: SNR² = N (D - N/2) / n; no fitted constant",
    reference="ours; builds on Rem F.3",
    holds="one linear layer, D >= 8; compared with trained models in docs/REPRODUCTION.md",
    domain=Domain("Lambda = 1", "D >= 8"),
    status="approximate",
)
def sharing_law(problem: Problem, *, value_rank: ArrayLike | None = None) -> Array:
    """Chance that a trained linear layer answers a query rightly (expand 2, convolution of width 2, tied).

    The codes of `sharing_codes`, then the chance that the right logit tops those of all other values, averaged
    over the query slots. State dimensions beyond D are allowed, but the rank of the keys is capped. The result
    lies in [1/V_v, 1], V_v = V/2, and is 1 where no noise is left. It grows with D and N and falls with N_f and
    V, for V >= 4 D and V >= 8 N_f; outside of that, steps of up to 1e-3 the wrong way have been seen.

    Paper: Thm 4.2 (`thm:prob-scaling-law`) asks the question, Rem F.3 (`app-rem:key-value-selectivity`) has
        the mechanism.
    Holds for: one linear layer; compared with trained ones for D from 8 to 64, N_f from 8 to 32, V from 128
        to 2048. There the quadrature is good to 1e-4; for N_f < 4, D < 4 or D near V/2, to 1e-2.
    Departs: Rem F.3 lets keys and values span orthogonal subspaces free of charge, and SNR² = N D / N_kv.
        Without D >= N + V_v dimensions they cannot; the price is N/2 out of D. Codes are tight frames, not random
        ones, and the logits of competitors are neither normal nor independent, so Phi(x - b) is replaced.
    """
    codes = sharing_codes(problem, value_rank=value_rank)
    return _recall(problem, codes.key_variance, codes.value_variance, codes.leak)


@takes_words
def recall_given_variances(
    problem: Problem,
    *,
    key_variance: ArrayLike,
    value_variance: ArrayLike,
    leak: ArrayLike,
    weight_variance: ArrayLike | None = None,
) -> Array:
    """The law for given variances and leak (see `SharingCodes`), say those measured in a trained model.

    `weight_variance` is that of the weight a wrong fact gives to its own value: the key variance, unless slices of the
    value are matched apart and err apart (see `laws/heads.py`).

    Paper: Thm 4.2 (`thm:prob-scaling-law`), the mean over the queries.
    Departs: each slot has its own numbers of noise pairs and of competitors. Random filler repeats values of
        the context, so some competitors were written once, a few twice, and most never.
    """
    own = key_variance if weight_variance is None else weight_variance
    means = {"key_variance": key_variance, "value_variance": value_variance, "leak": leak, "weight_variance": own}
    for name, given in means.items():
        if not np.all(np.isfinite(given) & (np.asarray(given) >= 0)):
            raise ValueError(f"{name}={np.asarray(given)}: a mean square is needed, finite and at least 0.")
    return _recall(problem, key_variance, value_variance, leak, weight_variance=own)


def _recall(
    problem: Problem,
    key_variance: ArrayLike,
    value_variance: ArrayLike,
    leak: ArrayLike,
    *,
    weight_variance: ArrayLike | None = None,
    slot_nodes: int | None = None,
    **nodes: int,
) -> Array:
    """`recall_given_variances`, with numbers of nodes for tests of the quadrature (see `win_probability`)."""
    check(problem)
    cells = np.broadcast_arrays(
        *(np.asarray(a, float) for a in (key_variance, value_variance, leak)),
        np.asarray(key_variance if weight_variance is None else weight_variance, float),
        problem.V - num_keys(problem.V),
        problem.N_f,
        problem.G,
        key_chance(problem),
    )
    # axes: cell, query slot
    v_N, v_D, l, v_own, V_v, N_f, G, kappa = (a.reshape(-1, 1) for a in cells)
    N_all, D_star, lam = dimensions(v_N, v_D, l)
    N_star = dimensions(v_own, v_D, l)[0]
    g, weights = _slot_rule(G[:, 0], N_f[:, 0], slot_nodes)
    kv, vk, kk, vv = counts(g, N_f, kappa)

    n = kv - 1 + vk * lam + 2 * np.sqrt(kk * vv * lam)  # noise pairs, counted in facts
    extra = np.maximum(kv - N_f, 0)  # pairs that look like facts, from the filler
    twice = extra * (N_f - 1) / V_v
    once = np.maximum(N_f - 1 + extra * (1 - N_f / V_v) - twice, 0)
    never = np.maximum(V_v - 1 - once - twice, 0)
    h = 2 * np.maximum(N_star - 1, 0) / (N_star + 2)  # relative variance of a squared coordinate
    noisy = (n > 0) & ~((v_D == 0) & (l == 0))
    spread = (h * (N_f - 1 + 3 * extra + vk * lam**2) + extra / 2) / np.where(noisy, n, 1) ** 2

    # orthogonal values see only their own weight, below 1 for every wrong key; but one dimension has two keys, + and -,
    # and the values of one sign draw lots: E 1/(1 + K), K binomial
    lots = 2 * -np.expm1(-(once + 1) * np.log(2)) / (once + 1)
    p = np.where((N_star < SIGN_CODE) & ~noisy & (n > 0), lots, 1.0)
    asked = noisy & (weights > 0)
    scaled = n * (N_star / N_all)  # so that the noise of all pairs stays n / N_all
    fields = np.broadcast_arrays(N_star, D_star, scaled, spread, extra / V_v, once, twice, never)
    p[asked] = win_probability(Noise(*(field[asked] for field in fields)), **nodes)
    mean = 1 - np.sum(weights * (1 - p), axis=-1)  # exactly 1 where every slot is
    return np.asarray(np.clip(mean, 1 / V_v[:, 0], 1.0).reshape(cells[0].shape))


def _slot_rule(num_slots: Array, num_facts: Array, n: int | None) -> Rule:
    """Mean over the slots g = 0 .. G-1, as an axis more: slot 0, which no filler precedes, and n nodes.

    The nodes are Gauss's for the sum over 1 .. G-1 itself (discrete Chebyshev polynomials), not for an
    integral in its place; n >= G - 1 is the plain mean. None: 4 nodes, and 8 for more than 3 N_f + 1 slots.
    """
    G, M = num_slots[:, None], num_slots[:, None] - 1
    few = np.where(3 * num_facts[:, None] >= M, 4, 8) if n is None else np.full_like(M, n)
    size = int(np.max(np.minimum(few, M), initial=1))
    k = np.arange(float(size))
    inside = k < np.minimum(few, M)
    diagonal = np.where(inside, 1 + (M - 1) / 2, -1 - k)  # rows beyond a cell's nodes: cut off, with weight 0
    j = k[1:]
    off_squared = np.where(inside[:, 1:], j**2 * (M**2 - j**2) / (4 * (4 * j**2 - 1)), 0)
    nodes, weights = golub_welsch(diagonal, off_squared)
    weights = np.where((nodes < 0) | (M == 0), 0.0, weights)
    nodes = np.concatenate([0 * G, np.maximum(nodes, 0)], axis=-1)
    return nodes, np.concatenate([1 / G, M / G * weights], axis=-1)
