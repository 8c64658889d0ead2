"""Spec of RWKV-7."""

from __future__ import annotations

from pydantic import Field

from recallscope.architectures.matrix_memory import LAYER, Forgetting, MatrixMemory, Writing
from recallscope.specs import architecture


@architecture("rwkv7")
class RWKV7Spec(Forgetting, Writing, MatrixMemory):
    """RWKV-7: S <- diag(w) S - (a o kappa) (kappaᵀ S) + k vᵀ; a rate a for every row, and a removal key of its own."""

    model = "recallscope.architectures.rwkv7_model:RWKV7"
    law = None  # open: a rate for every row and a removal key of its own
    PUBLISHED = LAYER | {"conv": "shift", "conv_width": 2, "output_gate": "sigmoid", "bonus": True, "write_start": 0.5}
    bonus: bool = Field(False, description="add the current token's value once more, weighted by its own match")
