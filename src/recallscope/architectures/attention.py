"""Spec of softmax attention."""

from __future__ import annotations

from recallscope.architectures.matrix_memory import LAYER, MatrixMemory
from recallscope.specs import architecture


@architecture("attention")
class AttentionSpec(MatrixMemory):
    """Causal softmax attention: keeps every key and value, so its memory grows with the sequence."""

    model = "recallscope.architectures.attention_model:SoftmaxAttention"
    law = "softmax"
    PUBLISHED = LAYER | {"output_norm": "none"}

    @property
    def state_entries(self) -> None:  # type: ignore[override]
        """No fixed number; see `state_entries_after`."""
        return

    def state_entries_after(self, tokens: int) -> int:
        """Lambda (M N + D_in) numbers for every token."""
        return self.depth * tokens * (self.num_heads * self.state_dim + self.inner_dim)
