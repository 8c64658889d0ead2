"""Spec of RetNet."""

from __future__ import annotations

from pydantic import Field

from recallscope.architectures.matrix_memory import LAYER, MatrixMemory
from recallscope.specs import Steps, architecture


@architecture("retnet")
class RetNetSpec(MatrixMemory):
    """RetNet: S <- gamma S + k vᵀ with a fixed gamma per head, 1 - 2^(-5-h)."""

    model = "recallscope.architectures.retnet_model:RetNet"
    law = "retention"
    PUBLISHED = LAYER | {"expand": 2, "output_gate": "silu"}
    slowest: Steps = Field(5, description="head h = 0, 1, .. keeps 1 - 2^-(slowest + h) of its state per token")
