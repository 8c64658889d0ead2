"""DeltaNet: the delta rule with unit keys and one learning rate β per head and token."""

from typing import final

import torch

from recallscope.architectures.matrix_memory import DeltaNetSpec
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, Gate, MemoryModel, Update


@final
class DeltaNetLayer(DeltaLayer):
    """S <- S + β k (v - Sᵀ k)ᵀ."""

    spec: DeltaNetSpec

    def gates(self) -> dict[str, Gate]:
        """β, before its sigmoid."""
        return {"beta": Gate(1, self.spec.write_bias)}

    def update(self, drive: Drive) -> Update:
        """What k held is read, and taken away as far as the new value is written."""
        q, k, v, gates = drive
        write = torch.sigmoid(gates["beta"]) * k
        return Update(q, write, v, a=k, b=-write)


@final
class DeltaNet(MemoryModel):
    """DeltaNet."""

    layer = DeltaNetLayer
