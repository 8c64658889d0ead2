"""RetNet: every head forgets at its own fixed rate."""

from typing import final

import torch
from jaxtyping import Int
from torch import Tensor

from recallscope.architectures.matrix_memory import RetNetSpec
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, MemoryModel, Update, rotated


@final
class RetNetLayer(DeltaLayer):
    """S <- γ S + k vᵀ."""

    spec: RetNetSpec

    def prepared(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Drive:
        """Turned by their positions, if the spec says so."""
        return rotated(self.spec, drive, positions)

    def why_not_edited(self) -> str | None:
        """A turned key is another one at every position."""
        return "with rotary a fact is written under another key at every position" if self.spec.rotary else None

    def update(self, drive: Drive) -> Update:
        """γ = 1 - 2^-(5+h)."""
        q, k, v, _ = drive
        heads = torch.arange(self.spec.num_heads, dtype=k.dtype, device=k.device)
        gamma = 1 - torch.exp2(-self.spec.slowest - heads)
        return Update(q, k, v, gamma[:, None].expand(*k.shape[:3], 1))


@final
class RetNet(MemoryModel):
    """RetNet."""

    layer = RetNetLayer
