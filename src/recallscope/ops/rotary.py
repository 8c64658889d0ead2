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
    return turned(x, (at[..., None] * rates)[..., None, :])


def turned(x: Float[Tensor, "batch T M N"], angles: Float[Tensor, "*#batch T #M A"]) -> Float[Tensor, "batch T M N"]:
    """Dimensions n and n + A turn by the angle n, for A angles; those from 2 A on stay as they are."""
    A, (cos, sin) = angles.shape[-1], (angles.cos(), angles.sin())
    first, second, rest = x.split([A, A, x.shape[-1] - 2 * A], dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)
