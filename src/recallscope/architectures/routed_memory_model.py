"""Routed memories: several matrices per head, and a router that says which of them holds a key.

Departs: memories add as linear attention does, and share their projections; those of MoM (arXiv 2502.13685) follow the
gated delta rule, have projections of their own, and one of them takes every token.
"""

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from recallscope.architectures.matrix_memory import RoutedMemorySpec
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, Gate, MemoryModel, Update, heads_at


@final
class RoutedMemoryLayer(DeltaLayer):
    """S_j <- S_j + r_j(k) β k vᵀ for the memories j, read as Σ_j r_j(q) S_jᵀ q: one scan over B N rows."""

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


@final
class RoutedMemory(MemoryModel):
    """Routed memories."""

    layer = RoutedMemoryLayer
