"""Gated linear attention: every row of the state fades at a rate that the token decides.

Departs: the gate's projection has full rank; the published one has rank 16.
"""

from typing import final

import torch
from torch.nn.functional import logsigmoid

from recallscope.architectures.matrix_memory import GLASpec, logit
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, Gate, MemoryModel, Update


@final
class GLALayer(DeltaLayer):
    """S <- diag(α) S + k vᵀ."""

    spec: GLASpec

    def gates(self) -> dict[str, Gate]:
        """α, before its log-sigmoid."""
        return {"alpha": Gate(self.spec.state_dim, logit(self.spec.forget_start**self.spec.gate_temper))}

    def update(self, drive: Drive) -> Update:
        """log α = logsigmoid(.) / 16."""
        q, k, v, gates = drive
        return Update(q, k, v, torch.exp(logsigmoid(gates["alpha"]) / self.spec.gate_temper))


@final
class GLA(MemoryModel):
    """Gated linear attention."""

    layer = GLALayer
