"""Spec of linear attention."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recallscope.architectures.matrix_memory import MatrixMemory
from recallscope.specs import architecture


@architecture("linear_attention")
class LinearAttentionSpec(MatrixMemory):
    """Linear attention: S <- S + f(k) vᵀ, read with f(q); Based with the Taylor map and the normaliser."""

    model = "recallscope.architectures.linear_attention_model:LinearAttention"
    law = "trained-sharing"
    feature_map: Literal["identity", "relu", "elu", "taylor"] = Field(
        "identity", description="f: identity; relu; elu + 1; taylor: 1, x, x xᵀ, so that f(q) f(k) = 1 + s + s^2/2"
    )
    normaliser: bool = Field(False, description="divide by the sum of the weights")

    @property
    def feature_dim(self) -> int:
        """F, rows of the state; of the symmetric x xᵀ each entry once."""
        N = self.state_dim
        return 1 + N + N * (N + 1) // 2 if self.feature_map == "taylor" else N

    @property
    def state_entries(self) -> int:
        """Lambda F D_in, and F per head for the normaliser; the Taylor map's constant would sum to the token count."""
        F, counts = self.feature_dim, self.feature_map == "taylor"
        return self.depth * (F * self.inner_dim + self.num_heads * self.normaliser * (F - counts))
