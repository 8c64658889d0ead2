"""What training makes of keys and values that share D dimensions: pair counts, ranks, variances, and the leak.

Re-exported by `recallscope.theory.laws.sharing`, where the law is.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from recallscope.theory.problem import Array, Problem, takes_words

SMALLEST_VARIANCE, LARGEST_VALUE_VARIANCE = 1e-6, 0.8  # so that N* and D* stay finite, and D* above 1


class PairCounts(NamedTuple):
    """Mean number of pairs of neighbouring tokens, by kind, that the state holds when a query comes."""

    kv: Array
    vk: Array
    kk: Array
    vv: Array


class SharingCodes(NamedTuple):
    """The predicted codes; kernels have diagonal 1, and variances are mean squares off the diagonal."""

    rank: Array  # N_e, dimensions that the key code uses
    key_variance: Array  # v_N, of the key kernel
    value_variance: Array  # v_D, of the value kernel
    leak: Array  # l, mean square of what a (value, key) pair adds to the logit of an unrelated value
    share: Array  # y, part of the value code that lies in the key dimensions
    key_dim: Array  # N* = 1 / v_N
    value_dim: Array  # D* = 1 / v_D
    leak_ratio: Array  # lambda = l / (v_N v_D), noise power of a (value, key) pair over that of a fact


@takes_words
def sharing_codes(problem: Problem, *, value_rank: ArrayLike | None = None) -> SharingCodes:
    """Rank, variances, leak and share of the codes that answer best, to be held against trained weights.

    Equal-norm tight frames have the least mean square off the diagonal: about 1/N_e - 1/V_k for V_k keys of
    rank N_e. The value code puts a share y into the key dimensions. There a (value, key) pair leaks at least
    (y/N_e)², by Cauchy-Schwarz over the ratio of key and value norms; y minimises self-noise, interference
    and leak together. With D >= N_e + V_v nothing needs to be shared: y, leak and value variance are 0.
    `value_rank` is the number of channels that carry values, if those are fewer than D (see `laws/heads.py`): values
    then keep clear of the keys as far as they can.

    Paper: Rem F.3 (`app-rem:key-value-selectivity`), where y = 0 costs nothing.
    Departs: orthogonal subspaces are one end of a trade-off, and with N of the order of D not the best one.
        The cap of the rank, D / (2 (1 - kv / all pairs)) at the mean query, is the best rank while keys and
        values still have equal norms, as early in training: assumed; trained MQAR models bear it out, AR
        models stay below it.
    """
    check(problem)
    D, V_k = problem.D, num_keys(problem.V)
    V_v = problem.V - V_k
    kv, vk, kk, vv = counts((problem.G - 1) / 2, problem.N_f, key_chance(problem))
    facts = kv / (kv + vk + kk + vv)
    N_e = np.maximum(1, np.minimum(np.minimum(problem.N, V_k), np.minimum(D, D / (2 * (1 - facts)))))
    v_N = _tight_variance(1 / N_e, V_k)

    carried = D if value_rank is None else np.minimum(D, np.asarray(value_rank, float))
    free = np.minimum(D - N_e, carried)  # dimensions without keys; N_e <= D, as D >= 2
    shared = carried - free  # dimensions with keys that values may use: N_e, unless channels are scarce
    cost_free = 1 + (kv - 1) * v_N
    a, b = 1 / (cost_free / np.where(shared > 0, shared, 1) + vk / N_e**2) * (shared > 0), free / cost_free
    y = a / (a + b)
    concentration = y**2 / np.where(shared > 0, shared, 1) + (1 - y) ** 2 / np.where(free > 0, free, 1)
    orthogonal = free >= V_v
    y = np.where(orthogonal, 0.0, y)
    v_D = np.where(orthogonal, 0.0, _tight_variance(concentration, V_v))
    leak = (y / N_e) ** 2
    return SharingCodes(N_e, v_N, v_D, leak, y, *dimensions(v_N, v_D, leak))


def dimensions(key_variance: Array, value_variance: Array, leak: Array) -> tuple[Array, Array, Array]:
    """N*, D* and lambda, with the variances held within [1e-6, ...] and [1e-6, 0.8]."""
    N_star = 1 / np.maximum(key_variance, SMALLEST_VARIANCE)
    D_star = 1 / np.clip(value_variance, SMALLEST_VARIANCE, LARGEST_VALUE_VARIANCE)
    return N_star, D_star, leak * N_star * D_star


def _tight_variance(concentration: Array, size: Array) -> Array:
    """Mean square off the diagonal for `size` words of norm 1 whose normalised spectrum has this squared norm."""
    return np.maximum(0, (concentration - 1 / size) * size / (size - 1))


@takes_words
def pair_counts(problem: Problem, *, slot: ArrayLike) -> PairCounts:
    """Mean number of (key, value), (value, key), (key, key) and (value, value) pairs before the query of slot g.

    Slots count from 0 to G - 1 and may be real numbers. Gaps are filled with any token.

    Paper: proof of Thm 4.2 (`thm:prob-scaling-law`), where N_kv = N_f + (t - 2 N_f) / 4 for L = 4 N_f.
    Departs: means for any L. With L > 4 N_f some slots hold no query, and (value, value) pairs appear.
    """
    N_f, G, kappa, g = np.broadcast_arrays(problem.N_f, problem.G, key_chance(problem), np.asarray(slot, float))
    if not np.all((g >= 0) & (g <= G - 1)):
        raise ValueError(
            f"slot={np.asarray(slot)}: the query section has slots 0 to G - 1, "
            f"and G = {np.min(G):g} here (1 for AR, else (length - 2 num_facts) / 2). "
            f"Use 0 <= slot <= {np.min(G) - 1:g}, or a longer sequence."
        )
    return counts(g, N_f, kappa)


def counts(g: Array, N_f: Array, kappa: Array) -> PairCounts:
    """`pair_counts` in letters; kappa is `key_chance`."""
    rest, later = 1 - kappa, g > 0
    kv = N_f + g * kappa / 2 + (g - 1) * rest / 2
    vk = N_f - 0.5 + kappa + (g - 1) * kappa / 2 + g * rest / 2
    kk = g * kappa / 2 + (g - 1) * kappa / 2 + 0.5
    vv = rest + (g - 1) * rest / 2 + g * rest / 2
    none = np.zeros_like(N_f)
    first = (N_f, N_f, none, none)
    return PairCounts(
        *(np.where(later, np.maximum(a, 0), start) for a, start in zip((kv, vk, kk, vv), first, strict=True))
    )


def key_chance(problem: Problem) -> Array:
    """kappa, how likely the first token of a slot is a key: surely if a query stands there, else half the time."""
    return np.ones_like(problem.G) if problem.task == "ar" else (1 + problem.N_f / problem.G) / 2


def num_keys(vocab_size: Array) -> Array:
    """V_k; the rest of the vocabulary are values."""
    return np.floor(vocab_size / 2)


def check(problem: Problem) -> None:
    """What this law asks beyond a sound problem: whole tokens, V >= 8, D >= 2, N_f <= V/2 - 1."""
    V, N_f = problem.V, problem.N_f
    for name, count in (("vocab_size", V), ("num_facts", N_f), ("length", problem.L)):
        if np.any(broken := count != np.floor(count)):
            value = count[broken].flat[0]
            raise ValueError(
                f"{name}={value:g} is not whole, but tokens are counted. "
                f"Use {name}={np.floor(value):g} or {np.ceil(value):g}."
            )
    if np.any(V < 8):
        raise ValueError(
            f"vocab_size={np.min(V):g} is below 8: the law treats V/2 keys and V/2 values as "
            f"frames, and fewer than 4 words make none. Use vocab_size >= 8."
        )
    if problem.embed_dim is not None and np.any(problem.D < 2):
        raise ValueError(
            f"embed_dim={np.min(problem.D):g} is below 2: keys and values need a dimension each. Use embed_dim >= 2."
        )
    if np.any(crowded := N_f > num_keys(V) - 1):
        facts, words = N_f[crowded].flat[0], V[crowded].flat[0]
        raise ValueError(
            f"num_facts={facts:g} needs as many distinct keys, but vocab_size={words:g} leaves {words // 2 - 1:g} "
            f"(tokens 1..V/2-1; 0 is never a key). "
            f"Use vocab_size >= {2 * facts + 2:g}, or num_facts <= {words // 2 - 1:g}."
        )
