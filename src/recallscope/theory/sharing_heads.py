"""The recall law of trained models with several heads: count the channels, not the dimensions.

The layer has D_in = expand D channels, but a single head reads only D dimensions of value out of them: with
expand = 2 half of its state is idle. What heads do to recall is what they do to the channels:

- MVA: the heads share keys and queries, so together they are one head. single[D, N].
- MQA, MKA: the heads share one value of P = D_in / M channels. As long as P >= D nothing is lost; beyond, values live
  in P dimensions, and keep clear of the keys. single[D, N] with values of rank min(D, P).
- MHA: every head has keys of its own. Up to M = expand heads, each holds all D dimensions of the values: the kernels
  add up to one of rank M N. More heads hold slices, and every dimension of value is still held by `expand` of them.
  single[D, min(M, expand) N].
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from recallscope.specs import HeadPattern
from recallscope.theory.inputs import Array, LawTask
from recallscope.theory.sharing import sharing_law


def sharing_heads_law(
    *,
    head_pattern: HeadPattern,
    num_heads: ArrayLike,
    vocab_size: ArrayLike,
    num_facts: ArrayLike,
    embed_dim: ArrayLike,
    state_dim: ArrayLike,
    task: LawTask = "mqar",
    length: ArrayLike | None = None,
    expand: ArrayLike = 2,
) -> Array:
    """Chance that a trained many-headed linear layer answers a query rightly; no fitted constant.

    Paper: takes the place of Thm 4.7 (`thm:multi-head-recall`).
    Holds for: trained models with the published expand = 2 (docs/REPRODUCTION.md). With expand = 1 no channel is idle,
        and MHA is no better than one head.
    Departs: Lem H.3, H.4 (`lem:mqa-recall`, `lem:mka-recall`) squeeze values into D / M dimensions, but the published
        models have 2 D / M channels for them; Lem H.5 (`lem:mha-recall`) credits MHA with M N D state entries, but it
        has as many as a single head, expand N D, and gains by using all of them. For M > expand the wrong facts of
        the context disturb less than in a single head with `expand` N, as the slices err apart: that gain is left
        out, so MHA may be better than this.
    """
    D, N, M, wide = np.broadcast_arrays(*(np.asarray(a, float) for a in (embed_dim, state_dim, num_heads, expand)))
    if np.any(M < 1):
        raise ValueError(f"num_heads={np.min(M):g}: a layer has at least one head. Use num_heads >= 1.")
    words: dict[str, Any] = {
        "vocab_size": vocab_size,
        "num_facts": num_facts,
        "embed_dim": D,
        "task": task,
        "length": length,
    }
    if head_pattern in ("MQA", "MKA"):
        return sharing_law(**words, state_dim=N, value_rank=np.maximum(1, wide * D / M))
    if head_pattern == "MVA":
        return sharing_law(**words, state_dim=N)
    if head_pattern == "MHA":
        return sharing_law(**words, state_dim=np.minimum(M, wide) * N)
    raise ValueError(f"head_pattern={head_pattern!r}: the patterns are MHA, MQA, MKA and MVA (Tab. 5).")
