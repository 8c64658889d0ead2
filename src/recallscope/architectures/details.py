"""What checkpoints from elsewhere vary, and our experiments never do."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Details:
    """The defaults are mamba-ssm's, and every model a spec describes has them; `from_pretrained` reads others."""

    norm_eps: float = 1e-5
    """added to the mean square in every norm"""
    projection_bias: bool = False
    """in_proj and out_proj have a bias"""
    tied_head: bool = True
    """the head is the embedding, transposed; else it has weights of its own"""
    delta_rank: int | None = None
    """R, rank of the Δ projection of Mamba-1; ceil(D/16) unless given"""
    delta_limits: tuple[float, float] = (0.0, math.inf)
    """Δ of Mamba-2 is clamped to these after softplus"""


OURS = Details()
