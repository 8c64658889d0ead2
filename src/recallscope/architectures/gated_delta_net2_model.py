"""Gated DeltaNet-2: rates of erasing for every row of the state, rates of writing for every channel of the value.

Departs: projections of α and of the output gate have full rank, as in KDA.
"""

from typing import final

import torch
from jaxtyping import Int
from torch import Tensor

from recallscope.architectures.gated_delta_net_model import fade
from recallscope.architectures.kda_model import KDALayer
from recallscope.architectures.matrix_memory_model import Drive, Gate, MemoryModel, Update


@final
class GatedDeltaNet2Layer(KDALayer):
    """S <- diag(α) S, then S <- S + k (w ⊙ v - Sᵀ (b ⊙ k))ᵀ."""

    def gates(self) -> dict[str, Gate]:
        """b and w before their sigmoids, α before its softplus."""
        start, N, P = self.spec.write_bias, self.spec.state_dim, self.spec.head_dim
        return {"erase": Gate(N, start), "write": Gate(P, start), "alpha": Gate(N, self.spec.fade_bias)}

    def prepared(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Drive:
        """The mean of w goes with the key, as β does in KDA; what differs between channels goes with the value."""
        w = torch.sigmoid(drive.gates["write"])
        mean = w.mean(dim=-1, keepdim=True)
        return drive._replace(v=w / mean * drive.v, gates=drive.gates | {"write": mean})

    def update(self, drive: Drive) -> Update:
        """Erased is what b ⊙ k reads."""
        q, k, v, gates = drive
        alpha = fade(self.A_log, gates["alpha"])
        return Update(q, gates["write"] * k, v, alpha, alpha * torch.sigmoid(gates["erase"]) * k, -k)


@final
class GatedDeltaNet2(MemoryModel):
    """Gated DeltaNet-2."""

    layer = GatedDeltaNet2Layer
