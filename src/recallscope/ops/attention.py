"""Causal softmax attention, o_t = Σ_{τ<=t} softmax_τ(k_τᵀ q_t) v_τ: exact recall, and a memory that grows with t.

With a window of w tokens the sum begins at t - w + 1, and the memory is that of w - 1 tokens.
"""

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
    window: int | None = None,
) -> Float[Tensor, "batch Q M P"]:
    """o after every token, or at the positions; q comes scaled."""
    tokens = torch.arange(k.shape[1], device=k.device)
    here = (tokens if positions is None else positions)[..., None]
    hidden = tokens > here if window is None else (tokens > here) | (tokens <= here - window)
    match = einsum(q, k, "batch Q M N, batch L M N -> batch M Q L")
    hidden = hidden if positions is None else hidden[:, None]
    weights = match.masked_fill(hidden, -torch.inf).softmax(dim=-1)
    return einsum(weights, v, "batch M Q L, batch L M P -> batch Q M P")


def softmax_attention_loop(
    q: Float[Tensor, "batch L M N"],
    k: Float[Tensor, "batch L M N"],
    v: Float[Tensor, "batch L M P"],
    *,
    window: int | None = None,
) -> Float[Tensor, "batch L M P"]:
    """One token after another: the plain twin."""
    o = []
    for t in range(k.shape[1]):
        seen = slice(0 if window is None else max(t + 1 - window, 0), t + 1)
        weights = einsum(q[:, t], k[:, seen], "batch M N, batch L M N -> batch L M").softmax(dim=1)
        o.append(einsum(weights, v[:, seen], "batch L M, batch L M P -> batch M P"))
    return torch.stack(o, dim=1)
