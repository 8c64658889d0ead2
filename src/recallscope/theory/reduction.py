"""Several layers or heads brought down to one: the single layer with a single head that recalls as well.

Paper: Thm 4.6 (`thm:multi-layer-recall-scaling-laws`) for layers, Thm 4.7 (`thm:multi-head-recall`) for heads.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from recallscope.specs import HeadPattern
from recallscope.theory.problem import Array, Problem

Hashes = Literal["printed", "joint", "independent"]


def one_layer(problem: Problem, hashes: Hashes = "joint") -> Problem:
    """The problem with all layers counted as one of the effective state (Thm 4.6)."""
    if np.all(problem.Lambda == 1):
        return problem
    N = effective_state(problem.N, problem.D, problem.Lambda, hashes=hashes)
    return problem.replace(state_dim=N, num_layers=1)


def effective_state(
    state_dim: ArrayLike, embed_dim: ArrayLike, num_layers: ArrayLike, *, hashes: Hashes = "joint"
) -> Array:
    """N_eff of Lambda layers: what one layer would need to match their key kernel.

    Paper: Thm 4.6 (`thm:multi-layer-recall-scaling-laws`): Lambda N, here `printed`.
    Departs: E~ = F E has rank at most D, so the layers' hashes are orthonormal together only up to Lambda N = D
        (`joint`); drawn independently they share E, and their noise averages to 1/(Lambda N) + (1 - 1/Lambda)/D.
    """
    N, D, layers = (np.asarray(a, float) for a in (state_dim, embed_dim, num_layers))
    if hashes == "printed":
        return layers * N
    if hashes == "joint":
        return np.where(layers * N <= D, layers * N, np.maximum(N, D))
    return 1 / (1 / (layers * N) + (1 - 1 / layers) / D)


class SingleHead(NamedTuple):
    """Dimensions of a single-head model."""

    embed_dim: Array
    state_dim: Array


class HeadBounds(NamedTuple):
    """A pattern's recall lies between that of these two single-head models."""

    lower: SingleHead
    upper: SingleHead


def one_head(problem: Problem, side: Literal["lower", "upper"] = "lower") -> Problem:
    """The single-head problem that bounds a many-headed one from below or above (Thm 4.7)."""
    if problem.head_pattern is None:
        return problem if np.all(problem.M == 1) else problem.replace(num_heads=1)
    bounds = head_bounds(problem.head_pattern, problem.D, problem.N, problem.M)
    return problem.replace(**getattr(bounds, side)._asdict(), num_heads=1, head_pattern=None)


def head_bounds(
    head_pattern: HeadPattern, embed_dim: ArrayLike, state_dim: ArrayLike, num_heads: ArrayLike
) -> HeadBounds:
    """The single-head models that bound a pattern from below and above; equal where the paper claims equality.

    Paper: Thm 4.7 (`thm:multi-head-recall`): p_MQA = p_MKA <= p_single = p_MVA <= p_MHA.
        Lem H.2 (`lem:mva-recall`): MVA is the single head itself.
        Lem H.3, H.4 (`lem:mqa-recall`, `lem:mka-recall`): MQA and MKA squeeze the values into D/M channels.
        Lem H.5 (`lem:mha-recall`): MHA lies between (D, N) and (D, M N).
    Departs: for MQA and MKA only "at least" is shown, equality is asserted. For MHA the upper bound is kept as a
        bound: the construction of the proof does not reach it, since its M states hold N D entries in all, not M N D.
    """
    D, N, M = np.broadcast_arrays(*(np.asarray(a, float) for a in (embed_dim, state_dim, num_heads)))
    if head_pattern in ("MQA", "MKA"):
        shared = SingleHead(D / M, N)
        return HeadBounds(shared, shared)
    single = SingleHead(D, N)
    if head_pattern == "MVA":
        return HeadBounds(single, single)
    if head_pattern == "MHA":
        return HeadBounds(single, SingleHead(D, M * N))
    raise ValueError(f"head_pattern={head_pattern!r}: the patterns are MHA, MQA, MKA and MVA (Tab. 5).")
