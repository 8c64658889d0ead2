"""Laws of models with several heads: the bounds of Thm 4.7, and ours, which counts channels instead of dimensions.

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

from typing import Any, Literal

import numpy as np

from recallscope.theory.domain import HEADS, SHARING_HEADS
from recallscope.theory.law import DIMENSIONS, Law
from recallscope.theory.laws.paper import NEAR_SQUARE, unified_law
from recallscope.theory.laws.sharing import QUICK, recall_given_variances, sharing_codes, sharing_law
from recallscope.theory.problem import Array, Problem, takes_fields
from recallscope.theory.reduction import one_head


@takes_fields
def sharing_heads_law(problem: Problem, *, exact: bool = False) -> Array:
    """Probability that a trained many-headed linear layer answers a query correctly.

    Paper: takes the place of Thm 4.7 (`thm:multi-head-recall`).
    Holds for: trained models with the published expand = 2 (docs/REPRODUCTION.md). With expand = 1 no channel is idle,
        and heads of MHA help against wrong facts only.
    Departs: Lem H.3, H.4 (`lem:mqa-recall`, `lem:mka-recall`) squeeze values into D / M dimensions, but the published
        models have 2 D / M channels for them; Lem H.5 (`lem:mha-recall`) credits MHA with M N D state entries, but it
        has as many as a single head, expand N D, and gains by using all of them, and by matching slices apart.
    """
    D, N, M, expand = problem.D, problem.N, problem.M, np.asarray(problem.expand)
    if problem.head_pattern in ("MQA", "MKA"):
        return sharing_law(problem, value_rank=np.maximum(1, expand * D / M), exact=exact)
    if problem.head_pattern != "MHA":
        return sharing_law(problem, exact=exact)
    codes = sharing_codes(problem, state_dim=np.minimum(M, expand) * N)
    apart = sharing_codes(problem, state_dim=M * N)
    return recall_given_variances(
        problem,
        key_variance=codes.key_variance,
        value_variance=codes.value_variance,
        leak=codes.leak,
        unshared=codes.unshared,
        weight_variance=apart.key_variance,
        exact=exact,
    )


@takes_fields
def unified_heads_law(problem: Problem, *, side: Literal["lower", "upper"] = "lower") -> Array:
    """The unified law for the single-head model that bounds a pattern.

    Paper: Thm 4.7 (`thm:multi-head-recall`) with Rem 4.3 (`rem:practical-scaling-law`).
    Departs: see `head_bounds`; the bounds differ for MHA only.
    """
    return unified_law(one_head(problem, side))


_HEADS: Any = {"models": ("multihead",), "needs": (*DIMENSIONS, "head_pattern"), "status": "approximate"}
_BOUND: Any = {"reference": "Thm 4.7, Rem 4.3", "holds": NEAR_SQUARE, "compared": HEADS, "layers": "printed"} | _HEADS
LAWS = [
    Law(
        "trained-sharing-heads",
        sharing_heads_law,
        summary="trained-sharing, counting the expand D channels that the heads share",
        reference="ours; replaces Thm 4.7",
        holds="one trained linear layer with expand = 2",
        support="mean absolute error 0.01, at most 0.07, for trained models with several heads",
        compared=SHARING_HEADS,
        layers="one",
        tolerance=QUICK,
        **_HEADS,
    ),
    Law(
        "unified-heads-lower",
        unified_heads_law,
        summary="unified for the single head that bounds the pattern from below: (D/M, N) for MQA and MKA",
        **_BOUND,
    ),
    Law(
        "unified-heads-upper",
        unified_heads_law,
        summary="unified for the single head that bounds the pattern from above: (D, M N) for MHA",
        options={"side": "upper"},
        **_BOUND,
    ),
]
