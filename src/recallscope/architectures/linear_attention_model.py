"""Linear attention: writes under features of the key, nothing fades, nothing is replaced."""

from collections.abc import Callable
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import elu, pad, relu

from recallscope.architectures.matrix_memory import LinearAttentionSpec
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, MemoryModel, Update

EPS = 1e-6  # added to the sum of weights that is divided by


def taylor_features(x: Float[Tensor, "*batch N"]) -> Float[Tensor, "*batch F"]:
    """1, x and the entries of x xᵀ / √2, those off the diagonal once and times √2: f(x) f(y) = 1 + xy + (xy)²/2."""
    N = x.shape[-1]
    row, column = torch.triu_indices(N, N, device=x.device)
    squares = x[..., row] * x[..., column] * torch.where(row == column, 0.5**0.5, 1.0)
    return torch.cat((torch.ones_like(x[..., :1]), x, squares), dim=-1)


FEATURES: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "relu": relu,
    "elu": lambda x: elu(x) + 1,
    "taylor": taylor_features,
}


@final
class LinearAttentionLayer(DeltaLayer):
    """S <- S + f(k) vᵀ."""

    spec: LinearAttentionSpec

    def update(self, drive: Drive) -> Update:
        """The scale of q is part of s in the Taylor map, and a factor after the others."""
        q, k, v, _ = drive
        N, f = self.spec.state_dim, FEATURES[self.spec.feature_map]
        q = f(q) if self.spec.feature_map == "taylor" else f(q * N**0.5) * N**-0.5
        return Update(q, f(k), pad(v, (0, 1), value=1.0) if self.spec.normaliser else v)

    def after_scan(
        self,
        o: Float[Tensor, "batch Q M P_all"],
        drive: Drive,
        update: Update,
        positions: Int[Tensor, "batch Q"] | None,
    ) -> Float[Tensor, "batch Q M P"]:
        """With a normaliser the last channel is the sum of the weights."""
        return o[..., :-1] / (o[..., -1:] + EPS) if self.spec.normaliser else o


@final
class LinearAttention(MemoryModel):
    """Linear attention."""

    layer = LinearAttentionLayer
