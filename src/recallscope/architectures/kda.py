"""Spec of Kimi Delta Attention."""

from __future__ import annotations

from recallscope.architectures.gated_delta_net import GatedDeltaNetSpec
from recallscope.architectures.matrix_memory import CONVOLVED
from recallscope.specs import architecture


@architecture("kda")
class KDASpec(GatedDeltaNetSpec):
    """Kimi Delta Attention: Gated DeltaNet with an alpha for every row of the state."""

    model = "recallscope.architectures.kda_model:KDA"
    PUBLISHED = CONVOLVED | {"output_gate": "sigmoid", "write_start": 0.5}
