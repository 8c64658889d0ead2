"""Comba: the delta rule takes away a share s of what the key reads, and queries are corrected by the current key.

Departs: s scales unit keys, as in the paper; fla's layer makes p = s k a unit vector again, which undoes s.
"""

from typing import final

import torch
from jaxtyping import Int
from torch import Tensor, nn

from recallscope.architectures.gated_delta_net_model import GatedDeltaNetLayer
from recallscope.architectures.matrix_memory import CombaSpec
from recallscope.architectures.matrix_memory_model import Drive, MemoryModel, Update, heads_at


@final
class CombaLayer(GatedDeltaNetLayer):
    """S <- α S, then S <- S + β k (v - Sᵀ p)ᵀ with p = s k, s = sigmoid(.) per head; read with q - d p."""

    spec: CombaSpec

    def __init__(self, spec: CombaSpec) -> None:
        super().__init__(spec)
        self.erase = nn.Parameter(torch.zeros(spec.num_heads, 1))
        self.correction = nn.Parameter(torch.zeros(spec.num_heads, 1)) if spec.output_correction else None

    def prepared(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Drive:
        """The corrected queries, scaled as queries are."""
        if self.correction is None:
            return drive
        p = torch.sigmoid(self.erase) * heads_at(drive.k, positions)
        return drive._replace(q=drive.q - self.correction * p * self.spec.state_dim**-0.5)

    def update(self, drive: Drive) -> Update:
        """Gated DeltaNet, but p reads what is taken away."""
        plain = super().update(drive)
        assert plain.a is not None
        return plain._replace(a=torch.sigmoid(self.erase) * plain.a)

    def draw_weights(self, generator: torch.Generator) -> None:
        """s starts at sigmoid(1), d where the spec says."""
        super().draw_weights(generator)
        nn.init.ones_(self.erase)
        if self.correction is not None:
            nn.init.constant_(self.correction, self.spec.output_correction)


@final
class Comba(MemoryModel):
    """Comba."""

    layer = CombaLayer
