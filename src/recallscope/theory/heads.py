"""What several heads make of a state: the single-head model each pattern of Mamba-2 comes down to.

Paper: Thm 4.7 (`thm:multi-head-recall`): p_MQA = p_MKA <= p_single = p_MVA <= p_MHA.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from recallscope.specs import HeadPattern
from recallscope.theory.inputs import Array


class SingleHead(NamedTuple):
    """Dimensions of a single-head model."""

    embed_dim: Array
    state_dim: Array


class HeadBounds(NamedTuple):
    """A pattern's recall lies between that of these two single-head models."""

    lower: SingleHead
    upper: SingleHead


def head_bounds(
    head_pattern: HeadPattern, embed_dim: ArrayLike, state_dim: ArrayLike, num_heads: ArrayLike
) -> HeadBounds:
    """The single-head models that bound a pattern from below and above; equal where the paper claims equality.

    Paper: Lem H.2 (`lem:mva-recall`): MVA is the single head itself. Lem H.3, H.4 (`lem:mqa-recall`,
        `lem:mka-recall`): MQA and MKA
        squeeze the values into D/M channels. Lem H.5 (`lem:mha-recall`): MHA lies between (D, N) and (D, M N).
    Departs: for MQA and MKA only "at least" is shown, equality is asserted. For MHA the upper bound is kept as a
        bound: the
        construction of the proof does not reach it, since its M states hold N D entries in all, not M N D.
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
