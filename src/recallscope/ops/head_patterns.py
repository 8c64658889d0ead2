"""Several heads: how channels are dealt to them, and what MHA, MQA, MKA and MVA share.

A head pattern says which of values x̂, keys B and queries C exist once per head, and which once for all
(Tab. 5). Here that is nothing but the length of the head axis, M or 1, so every function serves all four
patterns: an axis of length 1 is shared, and einsum stretches it.

| | MHA | MQA | MKA | MVA |
|---|---|---|---|---|
| x̂ | L M P | L 1 P | L 1 P | L M P |
| B | L M N | L 1 N | L M N | L 1 N |
| C | L M N | L M N | L 1 N | L 1 N |
"""

from typing import NamedTuple

import torch
from einops import einsum, rearrange
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.ops.linear_scan import CHUNK, linear_scan, scan_loop
from recallscope.specs import HeadPattern


class HeadCounts(NamedTuple):
    """Length of the head axis of x̂, B and C: M where every head has its own, 1 where all share."""

    x: int
    B: int
    C: int


def head_counts(pattern: HeadPattern, num_heads: int) -> HeadCounts:
    """What each pattern shares.   Paper: Tab. 5 (`tab:head-patterns`)."""
    M = num_heads
    return {
        "MHA": HeadCounts(x=M, B=M, C=M),
        "MQA": HeadCounts(x=1, B=1, C=M),
        "MKA": HeadCounts(x=1, B=M, C=1),
        "MVA": HeadCounts(x=M, B=1, C=1),
    }[pattern]


def split(x_hat: Float[Tensor, "*batch L D_in"], num_heads: int) -> Float[Tensor, "*batch L M P"]:
    """Deal the channels to the heads in order, P = D_in / M each.   Paper: Alg. 4 (`alg:mamba-2`)."""
    return rearrange(x_hat, "... L (M P) -> ... L M P", M=num_heads)


def contract(x_heads: Float[Tensor, "*batch L M P"], W_x: Float[Tensor, "P M"]) -> Float[Tensor, "*batch L 1 P"]:
    """One set of values for all heads, x̂_shared = Σ_h W_x^h ⊙ x̂^h.

    W_x^h is the column of head h: one weight for each of its P channels.

    Paper: Alg. 4 (`alg:mamba-2`), proof of Lem H.3 (`lem:mqa-recall`).
    """
    return einsum(x_heads, W_x, "... L M P, P M -> ... L P")[..., None, :]


def deal(x_hat: Float[Tensor, "*batch L D_in"], W_x: Float[Tensor, "P M D_in"]) -> Float[Tensor, "*batch L M P"]:
    """Any linear way to hand channels to heads; `dealing_weight` makes it `split`.

    Paper: Alg. 4 (`alg:mamba-2`).
    Departs: as printed, unshared values are only split; the published experiments learn this map too.
    """
    return einsum(x_hat, W_x, "... L D_in, P M D_in -> ... L M P")


def aggregate(y_heads: Float[Tensor, "*batch L M P"], W_y: Float[Tensor, "D_in P M"]) -> Float[Tensor, "*batch L D_in"]:
    """Gather what the heads read, ŷ = Σ_h W_y^h ŷ^h; `stacking_weight` stacks them, undoing `split`.

    Paper: Alg. 4 (`alg:mamba-2`), proof of Lem H.5 (`lem:mha-recall`).
    """
    return einsum(y_heads, W_y, "... L M P, D_in P M -> ... L D_in")


def dealing_weight(num_heads: int, head_dim: int) -> Float[Tensor, "P M D_in"]:
    """The W_x that makes `deal` the printed `split`: head h takes channels hP .. hP + P - 1."""
    M, P = num_heads, head_dim
    return rearrange(torch.eye(M * P), "(M P) D_in -> P M D_in", M=M)


def stacking_weight(num_heads: int, head_dim: int) -> Float[Tensor, "D_in P M"]:
    """The W_y that stacks the heads, written W_y^h = 1 in the proof of Lem H.2 (`lem:mva-recall`)."""
    return rearrange(dealing_weight(num_heads, head_dim), "P M D_in -> D_in P M")


def multi_head_states(
    x_heads: Float[Tensor, "*batch L #M P"], B: Float[Tensor, "*batch L #M N"]
) -> Float[Tensor, "*batch L M P N"]:
    """State of each head after each token; one for all if x̂ and B are.   Paper: Eq. 4 (`eq:simple-ssm`)."""
    return einsum(x_heads, B, "... L M P, ... L M N -> ... L M P N").cumsum(dim=-4)


def multi_head_scan_loop(
    x_heads: Float[Tensor, "*batch L #M P"], B: Float[Tensor, "*batch L #M N"], C: Float[Tensor, "*batch L #M N"]
) -> Float[Tensor, "*batch L M P"]:
    """One head after another, one token after another: the plain twin.   Paper: Alg. 4 (`alg:mamba-2`)."""
    M = max(x_heads.shape[-2], B.shape[-2], C.shape[-2])

    def of_head(values: Tensor, h: int) -> Tensor:
        return values[..., h if values.shape[-2] > 1 else 0, :]

    return torch.stack([scan_loop(of_head(x_heads, h), of_head(B, h), of_head(C, h)) for h in range(M)], dim=-2)


def multi_head_scan(
    x_heads: Float[Tensor, "*batch L #M P"], B: Float[Tensor, "*batch L #M N"], C: Float[Tensor, "*batch L #M N"]
) -> Float[Tensor, "*batch L M P"]:
    """All heads at once as masked attention, in chunks if L is large.   Paper: Alg. 4 (`alg:mamba-2`)."""
    L, M = x_heads.shape[-3], max(x_heads.shape[-2], B.shape[-2], C.shape[-2])
    if L > CHUNK:
        x_each, B_each, C_each = (v.expand(*v.shape[:-2], M, -1).transpose(-2, -3) for v in (x_heads, B, C))
        return linear_scan(x_each, B_each, C_each).transpose(-2, -3)
    alpha = einsum(C, B, "... t M N, ... tau M N -> ... M t tau").tril()
    return einsum(alpha, x_heads, "... M t tau, ... tau M P -> ... t M P")


def multi_head_read_at(
    x_heads: Float[Tensor, "*batch L #M P"],
    B: Float[Tensor, "*batch L #M N"],
    C_q: Float[Tensor, "*batch Q #M N"],
    positions: Int[Tensor, "*batch Q"],
) -> Float[Tensor, "*batch Q M P"]:
    """ŷ of every head at the positions only, from C at those positions.   Paper: Alg. 4 (`alg:mamba-2`)."""
    past = torch.arange(x_heads.shape[-3], device=positions.device) <= positions[..., None]
    alpha = einsum(C_q, B, "... Q M N, ... tau M N -> ... M Q tau") * past[..., None, :, :]
    return einsum(alpha, x_heads, "... M Q tau, ... tau M P -> ... Q M P")
