"""Rotary position embedding (RoPE): a query and a key match by their content and by how far apart they stand."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def rotary(
    x: Float[Tensor, "batch T M N"], base: float, positions: Int[Tensor, "batch T"] | None = None
) -> Float[Tensor, "batch T M N"]:
    """Dimensions n and n + N/2 of the vector at position t turn by the angle t / base^(2n/N)."""
    half = x.shape[-1] // 2
    at = torch.arange(x.shape[1], device=x.device) if positions is None else positions
    rates = base ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    angles = (at[..., None] * rates)[..., None, :]
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
