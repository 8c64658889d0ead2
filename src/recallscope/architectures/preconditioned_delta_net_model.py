"""Preconditioned Gated DeltaNet: the diagonal of sum k kᵀ says how far each row of the state is moved.

Departs: the start of both fading gates is that of Gated DeltaNet here.
"""

import math
from typing import final

import torch
from torch import nn

from recallscope.architectures.gated_delta_net_model import GatedDeltaNetLayer, fade
from recallscope.architectures.matrix_memory import GatedDeltaNetSpec
from recallscope.architectures.matrix_memory_model import Drive, Gate, MemoryModel, Update
from recallscope.ops.delta_scan import delta_scan

LARGEST, EPS, SCALE = 1.5, 1e-6, -0.2  # factors lie between 1/1.5 and 1.5, and are 1 where log h is -.2 at the start


@final
class PreconditionedDeltaNetLayer(GatedDeltaNetLayer):
    """h <- α' h + β' k²; S <- α S, then S <- S + β (m(h) ⊙ k) (v - Sᵀ k)ᵀ, m falling with h from 1.5 to 1/1.5."""

    def __init__(self, spec: GatedDeltaNetSpec) -> None:
        super().__init__(spec)
        self.curvature_A_log = nn.Parameter(torch.zeros(spec.num_heads, 1))
        self.log_scale = nn.Parameter(torch.zeros(spec.num_heads, 1))

    def gates(self) -> dict[str, Gate]:
        """Rate and fading of h start as those of S."""
        write, fading = Gate(1, self.spec.write_bias), Gate(1, self.spec.fade_bias)
        return {"beta": write, "alpha": fading, "curvature_beta": write, "curvature_alpha": fading}

    def update(self, drive: Drive) -> Update:
        """h is a state of one row, and comes from the same scan."""
        plain, k, gates = super().update(drive), drive.k, drive.gates
        one = torch.ones_like(gates["beta"])
        moved = torch.sigmoid(gates["curvature_beta"]) * k.square()
        h = delta_scan(one, one, moved, fade(self.curvature_A_log, gates["curvature_alpha"]))
        r = torch.log(h + EPS) - self.log_scale
        m = torch.exp(-math.log(LARGEST) * r / (1 + r.abs()))
        assert plain.b is not None
        return plain._replace(k=m * plain.k, b=m * plain.b)

    def why_not_edited(self) -> str | None:
        """h scales every write."""
        return "a key is scaled by the keys before it: what a fact leaves in the state depends on them"

    def draw_weights(self, generator: torch.Generator) -> None:
        """The scale starts at -.2."""
        super().draw_weights(generator)
        nn.init.constant_(self.log_scale, SCALE)


@final
class PreconditionedDeltaNet(MemoryModel):
    """Preconditioned Gated DeltaNet."""

    layer = PreconditionedDeltaNetLayer
