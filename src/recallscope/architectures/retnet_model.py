"""RetNet: every head forgets at its own fixed rate.

Departs: no rotary embedding of queries and keys.
"""

from typing import final

import torch

from recallscope.architectures.matrix_memory import RetNetSpec
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, MemoryModel, Update


@final
class RetNetLayer(DeltaLayer):
    """S <- γ S + k vᵀ."""

    spec: RetNetSpec

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
