"""The recall law of trained models with several heads: count the channels, not the dimensions.

The layer has D_in = expand D channels, but a single head reads only D dimensions of value out of them: with
expand = 2 half of its state is idle. What heads do to recall is what they do to the channels:

- MVA: the heads share keys and queries, so together they are one head. single[D, N].
- MQA, MKA: the heads share one value of P = D_in / M channels. As long as P >= D nothing is lost; beyond, values live
  in P dimensions, and keep clear of the keys. single[D, N] with values of rank min(D, P).
- MHA: every head has keys of its own. Up to M = expand heads, each holds all D dimensions of the values: the kernels
  add up to one of rank M N, single[D, M N]. More heads hold slices of the value, and every slice is held by `expand` of
  them: the noise of all pairs together stays that of single[D, expand N]. But a wrong fact is now matched slice by
  slice, and the slices err apart: the weight it gives to its own value, the most dangerous of all, has the variance of
  a match of rank M N.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from recallscope.specs import HeadPattern
from recallscope.theory.inputs import Array, LawTask
from recallscope.theory.sharing import recall_given_variances, sharing_codes, sharing_law


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
        and heads of MHA help against wrong facts only.
    Departs: Lem H.3, H.4 (`lem:mqa-recall`, `lem:mka-recall`) squeeze values into D / M dimensions, but the published
        models have 2 D / M channels for them; Lem H.5 (`lem:mha-recall`) credits MHA with M N D state entries, but it
        has as many as a single head, expand N D, and gains by using all of them, and by matching slices apart.
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
        codes = sharing_codes(**words, state_dim=np.minimum(M, wide) * N)
        apart = sharing_codes(**words, state_dim=M * N)
        return recall_given_variances(
            key_variance=codes.key_variance,
            value_variance=codes.value_variance,
            leak=codes.leak,
            weight_variance=apart.key_variance,
            vocab_size=vocab_size,
            num_facts=num_facts,
            task=task,
            length=length,
        )
    raise ValueError(f"head_pattern={head_pattern!r}: the patterns are MHA, MQA, MKA and MVA (Tab. 5).")
