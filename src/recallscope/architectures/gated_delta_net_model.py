"""Gated DeltaNet: the delta rule on a state that fades as one, α = exp(-exp(A_log) softplus(.)).

Departs: A_log starts at 0 and the gate's bias where α is `forget_start`; published layers draw both as Mamba-2 does.
"""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from recallscope.architectures.matrix_memory import GatedDeltaNetSpec
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, Gate, MemoryModel, Update


def fade(A_log: Tensor, gate: Tensor) -> Tensor:
    """α = exp(-exp(A_log) softplus(gate))."""
    return torch.exp(-A_log.exp() * softplus(gate))


class GatedDeltaNetLayer(DeltaLayer):
    """S <- α S, then S <- S + β k (v - Sᵀ k)ᵀ."""

    spec: GatedDeltaNetSpec

    def __init__(self, spec: GatedDeltaNetSpec) -> None:
        super().__init__(spec)
        self.A_log = nn.Parameter(torch.zeros(spec.num_heads, 1))

    @property
    def fading_width(self) -> int:
        """How many α a head has: one for the whole state."""
        return 1

    def gates(self) -> dict[str, Gate]:
        """β before its sigmoid, α before its softplus."""
        return {"beta": Gate(1, self.spec.write_bias), "alpha": Gate(self.fading_width, self.spec.fade_bias)}

    def update(self, drive: Drive) -> Update:
        """The delta rule reads what is left: aᵀ S = (α k)ᵀ S."""
        q, k, v, gates = drive
        alpha = fade(self.A_log, gates["alpha"])
        write = torch.sigmoid(gates["beta"]) * k
        return Update(q, write, v, alpha, alpha * k, -write)


@final
class GatedDeltaNet(MemoryModel):
    """Gated DeltaNet."""

    layer = GatedDeltaNetLayer
