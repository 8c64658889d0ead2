"""Spec of DeltaNet."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recallscope.architectures.matrix_memory import CONVOLVED, MatrixMemory, Writing
from recallscope.specs import architecture


@architecture("delta_net")
class DeltaNetSpec(Writing, MatrixMemory):
    """DeltaNet: S <- S + beta k (v - Sᵀ k)ᵀ; what a key held is replaced, not added to."""

    model = "recallscope.architectures.delta_net_model:DeltaNet"
    law = "delta"
    PUBLISHED = CONVOLVED | {"write_start": 0.5}
    qk_norm: Literal["l2", "none"] = Field("l2", description="l2: queries and keys have length 1")
