"""Spec of MesaNet."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from recallscope.architectures.matrix_memory import CONVOLVED, Forgetting, MatrixMemory, Writing
from recallscope.specs import architecture


@architecture("mesa_net")
class MesaNetSpec(Forgetting, Writing, MatrixMemory):
    """MesaNet: o = Sᵀ (H + lambda)⁻¹ q, the least-squares answer to all pairs seen; S sums k vᵀ, H sums k kᵀ."""

    model = "recallscope.architectures.mesa_net_model:MesaNet"
    law = "least-squares"
    PUBLISHED = CONVOLVED | {"forget": True, "least_ridge": 0.25, "write_start": 0.5}
    qk_norm: Literal["l2", "none"] = Field("l2", description="l2: queries and keys have length 1")
    forget: bool = Field(False, description="S and H fade by one alpha per head")
    least_ridge: Annotated[float, Field(ge=0, le=1e6)] = Field(0.0, description="lambda is this plus what is learnt")

    @property
    def state_entries(self) -> int:
        """Lambda D_in N for S; H is symmetric, N (N + 1) / 2 numbers per head."""
        N = self.state_dim
        return self.depth * (self.inner_dim * N + self.num_heads * N * (N + 1) // 2)
