"""DeltaProduct: every token makes several steps of the delta rule, with a key, a value and a rate each."""

from typing import final

import torch
from torch import Tensor, nn

from recallscope.architectures.gated_delta_net_model import fade
from recallscope.architectures.matrix_memory import DeltaProductSpec
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, Gate, MemoryModel, Update


@final
class DeltaProductLayer(DeltaLayer):
    """S <- α S, then S <- S + β k (v - Sᵀ k)ᵀ for each of a token's steps; α = 1 unless the spec has it forget."""

    spec: DeltaProductSpec

    def __init__(self, spec: DeltaProductSpec) -> None:
        super().__init__(spec)
        self.A_log = nn.Parameter(torch.zeros(spec.num_heads, 1)) if spec.forget else None

    def gates(self) -> dict[str, Gate]:
        """β of every step before its sigmoid; α before its softplus, if the state fades."""
        beta = {"beta": Gate(self.spec.num_steps, self.spec.write_bias)}
        return beta | ({"alpha": Gate(1, self.spec.fade_bias)} if self.spec.forget else {})

    def update(self, drive: Drive) -> Update:
        """The steps one after another; only the first finds the state faded."""
        q, k, v, gates = drive
        n = self.spec.num_steps

        def by_step(x: Tensor) -> Tensor:
            """(batch, L, M, n width) to (batch, n L, M, width)."""
            return x.unflatten(-1, (n, -1)).transpose(2, 3).flatten(1, 2)

        k, v, w = by_step(k), by_step(v), None
        write = self.spec.largest_rate * torch.sigmoid(by_step(gates["beta"])) * k
        if self.A_log is not None:
            alpha = fade(self.A_log, gates["alpha"])
            w = by_step(torch.cat((alpha, torch.ones_like(alpha).expand(*alpha.shape[:-1], n - 1)), dim=-1))
        return Update(q, write, v, w, k if w is None else w * k, -write, n)

    def why_not_edited(self) -> str | None:
        """A token is more than one fact."""
        return "a token makes several steps of the delta rule: what it leaves is not one value under one key"


@final
class DeltaProduct(MemoryModel):
    """DeltaProduct."""

    layer = DeltaProductLayer
