"""Picking moments out of a sequence: what a model says is asked at the queries only."""

from jaxtyping import Int, Shaped
from torch import Tensor


def at_positions(
    values: Shaped[Tensor, "*batch L C"], positions: Int[Tensor, "*batch Q"]
) -> Shaped[Tensor, "*batch Q C"]:
    """The rows of `values` at the given positions, which each sequence has its own of; one may come twice."""
    index = positions[..., None].expand(*positions.shape, values.shape[-1])
    return values.gather(dim=-2, index=index)
