"""Spec of mLSTM."""

from __future__ import annotations

from pydantic import Field

from recallscope.architectures.matrix_memory import CONVOLVED, Forgetting, MatrixMemory
from recallscope.specs import architecture


@architecture("mlstm")
class MLSTMSpec(Forgetting, MatrixMemory):
    """mLSTM: S <- f S + i k vᵀ with an exponential write gate; what is read is divided by max(|n q|, 1)."""

    model = "recallscope.architectures.mlstm_model:MLSTM"
    law = "gated"
    PUBLISHED = CONVOLVED | {"expand": 2, "output_gate": "sigmoid"}
    normaliser: bool = Field(True, description="divide what is read by max(|n q|, 1), n being the faded sum of keys")

    @property
    def state_entries(self) -> int:
        """Lambda D_in N, and N per head for the normaliser."""
        return self.depth * self.state_dim * (self.inner_dim + self.num_heads * self.normaliser)
