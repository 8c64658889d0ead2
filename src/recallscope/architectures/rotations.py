"""Random rotations and scales: the freedom of weights that leaves a linear layer's function unchanged."""

import torch
from jaxtyping import Float
from torch import Tensor


def random_rotation(dim: int, generator: torch.Generator, like: Tensor) -> Float[Tensor, "dim dim"]:
    """A rotation or reflection of R^dim, all equally likely."""
    drawn = torch.randn(dim, dim, generator=generator, dtype=torch.float64, device=generator.device)
    Q, upper = torch.linalg.qr(drawn)
    return (Q * upper.diagonal().sign()).to(like)


def random_scales(count: int, generator: torch.Generator, spread: float, like: Tensor) -> Float[Tensor, " count"]:
    """exp(`spread` x normal), of either sign: away from 0."""
    normal = torch.randn(2, count, generator=generator, dtype=torch.float64, device=generator.device)
    return (torch.exp(spread * normal[0]) * torch.where(normal[1] < 0, -1.0, 1.0)).to(like)


def random_order(count: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """A permutation."""
    return torch.randperm(count, generator=generator, device=generator.device).to(like.device)
