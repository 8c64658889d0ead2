"""Spec of Gated DeltaNet."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recallscope.architectures.matrix_memory import CONVOLVED, Forgetting, MatrixMemory, Writing
from recallscope.specs import architecture


@architecture("gated_delta_net")
class GatedDeltaNetSpec(Forgetting, Writing, MatrixMemory):
    """Gated DeltaNet: the state fades by one alpha per head, then the delta rule."""

    model = "recallscope.architectures.gated_delta_net_model:GatedDeltaNet"
    law = "delta"
    PUBLISHED = CONVOLVED | {"expand": 2, "output_gate": "silu", "write_start": 0.5}
    qk_norm: Literal["l2", "none"] = Field("l2", description="l2: queries and keys have length 1")
