"""Softmax attention, which keeps everything, with a window or without; and linear attention, routed or not.

Without positions a window of two tokens is what recall needs: it tells a value which key stood before it.
"""

from collections.abc import Callable
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import elu, one_hot, pad, relu

from recallscope.architectures.matrix_memory import (
    AttentionSpec,
    LinearAttentionSpec,
    RoutedMemorySpec,
    WindowAttentionSpec,
)
from recallscope.architectures.matrix_memory_model import (
    DeltaLayer,
    Drive,
    Gate,
    MemoryLayer,
    Update,
    heads_at,
    rotated,
)
from recallscope.ops.attention import softmax_attention


class SoftmaxLayer(MemoryLayer):
    """o_t = Σ_τ softmax_τ(kᵀ_τ q_t) v_τ; with `rotary` and `mlp_width` it is a layer of Llama."""

    spec: AttentionSpec

    def prepared(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Drive:
        """Turned by their positions, if the spec says so."""
        return rotated(self.spec, drive, positions)

    def recall(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Float[Tensor, "batch Q M P"]:
        """All keys and values so far are looked at."""
        return softmax_attention(drive.q, drive.k, drive.v, positions=positions)

    def state(self, drive: Drive) -> None:
        """None: it grows."""
        return


@final
class WindowLayer(SoftmaxLayer):
    """o_t = Σ_τ softmax_τ(kᵀ_τ q_t) v_τ over t - w < τ <= t."""

    spec: WindowAttentionSpec
    no_state = "a window keeps the last keys and values as they are: its memory is no matrix that facts share"

    def recall(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Float[Tensor, "batch Q M P"]:
        """The last w keys and values, the token's own included."""
        return softmax_attention(drive.q, drive.k, drive.v, positions=positions, window=self.spec.window)


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
class RoutedMemoryLayer(DeltaLayer):
    """S_j <- S_j + r_j(k) β k vᵀ for the memories j, read as Σ_j r_j(q) S_jᵀ q: one scan over B N rows.

    Departs: memories add as linear attention does, and share their projections; those of MoM (arXiv 2502.13685) follow
        the gated delta rule, have projections of their own, and one of them takes every token.
    """

    spec: RoutedMemorySpec

    def gates(self) -> dict[str, Gate]:
        """β before its sigmoid, both routers before their softmax."""
        router = Gate(self.spec.num_memories, 0.0)
        return {"beta": Gate(1, self.spec.write_bias), "write": router, "read": router}

    def prepared(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Drive:
        """Queries are routed where they are asked."""
        return drive._replace(gates=drive.gates | {"read": heads_at(drive.gates["read"], positions)})

    def route(self, router: Float[Tensor, "batch T M B"]) -> Float[Tensor, "batch T M B"]:
        """How much of a token goes to each memory; the gradient of top1 is that of the softmax."""
        soft = router.softmax(dim=-1)
        if self.spec.routing == "soft":
            return soft
        return one_hot(router.argmax(dim=-1), self.spec.num_memories).to(soft.dtype) + (soft - soft.detach())

    def update(self, drive: Drive) -> Update:
        """A key or query of B N numbers: itself in the rows of its memory."""
        q, k, v, gates = drive

        def routed(x: Tensor, router: Tensor) -> Tensor:
            return (self.route(router)[..., None] * x[..., None, :]).flatten(-2)

        return Update(routed(q, gates["read"]), routed(torch.sigmoid(gates["beta"]) * k, gates["write"]), v)
