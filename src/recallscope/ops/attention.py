"""Causal softmax attention, o_t = Σ_{τ<=t} softmax_τ(k_τᵀ q_t) v_τ: exact recall, and a memory that grows with t."""

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor


def softmax_attention(
    q: Float[Tensor, "batch Q M N"],
    k: Float[Tensor, "batch L M N"],
    v: Float[Tensor, "batch L M P"],
    *,
    positions: Int[Tensor, "batch Q"] | None = None,
) -> Float[Tensor, "batch Q M P"]:
    """o after every token, or at the positions; q comes scaled."""
    tokens = torch.arange(k.shape[1], device=k.device)
    ahead = tokens > (tokens if positions is None else positions)[..., None]
    match = einsum(q, k, "batch Q M N, batch L M N -> batch M Q L")
    ahead = ahead if positions is None else ahead[:, None]
    weights = match.masked_fill(ahead, -torch.inf).softmax(dim=-1)
    return einsum(weights, v, "batch M Q L, batch L M P -> batch Q M P")


def softmax_attention_loop(
    q: Float[Tensor, "batch L M N"], k: Float[Tensor, "batch L M N"], v: Float[Tensor, "batch L M P"]
) -> Float[Tensor, "batch L M P"]:
    """One token after another: the plain twin."""
    o = []
    for t in range(k.shape[1]):
        weights = einsum(q[:, t], k[:, : t + 1], "batch M N, batch L M N -> batch L M").softmax(dim=1)
        o.append(einsum(weights, v[:, : t + 1], "batch L M, batch L M P -> batch M P"))
    return torch.stack(o, dim=1)
