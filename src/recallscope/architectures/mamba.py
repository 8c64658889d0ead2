"""Spec of full Mamba."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from recallscope.architectures.sizes import Sizes
from recallscope.specs import Size, architecture


class MambaBlock(Sizes):
    """What the blocks of full Mamba and Mamba-2 have in common: norm, mixer, residual, as often as there are layers."""

    num_layers: Size = Field(1, description="Lambda, stacked layers")
    residual: bool = Field(True, description="add each layer's input to its output")
    norm: Literal["rms", "none"] = Field("rms", description="RMSNorm before each layer and before the head")
    skip: bool = Field(True, description="the skip weight D of mamba-ssm, y += D x")
    conv_bias: bool = Field(True, description="bias after the convolution")

    def work_per_token(self) -> float:
        """No shortcut through the table of V rows, and a scan with a decay: about three times the linear model's."""
        return 3 * super().work_per_token()


@architecture("mamba")
class MambaSpec(MambaBlock):
    """Full Mamba (Eq. 1-3), with the switches of the ablations (Tab. 8, `fig:mqar_ablation`)."""

    model = "recallscope.architectures.mamba_model:Mamba"
    law = "full-mamba"
    gate: bool = Field(True, description="multiply by SiLU of the second half of in_proj")
    activation: Literal["silu", "none"] = Field("silu", description="what follows the convolution")
    transition: Literal["selective", "write", "identity"] = Field(
        "selective",
        description="selective: exp(Delta A) with Delta from the input; write: A-bar = I, Delta on the write alone; "
        "identity: A-bar = I, no Delta",
    )
    delta_rank: Literal["low", "full"] = Field("low", description="rank of the Delta projection: ceil(D/16), or D_in")

    @property
    def own_law(self) -> str | None:
        """Of the ablations, only those without a gate have a law: facts alone are written, by SiLU or by Delta."""
        changed = self.changed - {"num_layers", "expand"}
        selects = self.activation == "silu" or self.transition == "selective"
        ungated = selects and "gate" in changed and "delta_rank" not in changed and "conv_width" not in changed
        return "full-nd" if ungated else None if changed else self.law
