"""Spec of gated linear attention."""

from __future__ import annotations

from pydantic import Field

from recallscope.architectures.matrix_memory import LAYER, Forgetting, MatrixMemory
from recallscope.specs import Positive, architecture


@architecture("gla")
class GLASpec(Forgetting, MatrixMemory):
    """Gated linear attention: S <- diag(alpha) S + k vᵀ, alpha = sigmoid(.)^(1/16) for every row of S."""

    model = "recallscope.architectures.gla_model:GLA"
    law = "trained-sharing"  # at best: its gate forgets, and none decides what is written
    PUBLISHED = LAYER | {"output_gate": "silu", "forget_start": 0.958}
    gate_temper: Positive = Field(16.0, description="log alpha is a log-sigmoid divided by this")
