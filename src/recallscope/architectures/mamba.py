"""Specs of the Mambas: linear, full Mamba, heads as in Alg. 4, and Mamba-2."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from recallscope.architectures.sizes import Heads, Sizes, with_residual
from recallscope.specs import HeadPattern, Size, architecture


@architecture("linear_mamba")
class LinearMambaSpec(Sizes):
    """Simplified Mamba, one layer (Alg. 1, `alg:mamba`) or stacked with residuals (Alg. 3, `app-alg:mamba-layers`)."""

    model = "recallscope.architectures.linear_mamba_model:LinearMamba"
    law = "trained-sharing"
    FOLLOWING = ("residual",)
    num_layers: Size = Field(1, description="Lambda, stacked layers")
    residual: bool = Field(description="add each layer's input to its output; on for deep models unless said otherwise")

    @model_validator(mode="before")
    @classmethod
    def _deep_models_have_residuals(cls, data: Any) -> Any:
        return with_residual(data)

    def parameter_count(self, vocab_size: int) -> int:
        """E, and P_in, P_out, W_conv, S_B and S_C of every layer."""
        D, D_in = self.embed_dim, self.inner_dim
        return vocab_size * D + self.num_layers * D_in * (2 * D + self.conv_width + 2 * self.state_dim)

    @property
    def effective_entries(self) -> int:
        """Of the 2 D channels of a layer its output sees D directions: Lambda D N."""
        return self.num_layers * min(self.embed_dim, self.inner_dim) * self.state_dim

    @property
    def effective_state(self) -> int:
        """N_eff = Lambda N (Thm 4.6)."""
        return self.num_layers * self.state_dim


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


@architecture("multihead")
class MultiHeadSpec(Heads):
    """Simplified Mamba-2 (Alg. 4, `alg:mamba-2`).

    Departs: the printed algorithm splits D channels into heads, the published experiments split the expanded
        width. `expand` says which: 1 as printed, 2 as published.
    """

    model = "recallscope.architectures.multihead_model:MultiHeadMamba"
    law = "trained-sharing-heads"
    head_pattern: HeadPattern = Field(
        description="what the heads share (Tab. 5): MHA nothing, MQA x and B, MKA x and C, MVA B and C"
    )
    expand: Size = Field(2, description="channels split into heads, over D: 1 as printed, 2 as published")

    def work_per_token(self) -> float:
        """Every head has keys and queries of its own."""
        return float(self.inner_dim * (self.embed_dim + 4 * self.state_dim * self.num_heads))


@architecture("mamba2")
class Mamba2Spec(MambaBlock, Heads):
    """Full Mamba-2: the block of Eq. 1 with heads, gated norm and one decay per head; patterns as in Tab. 5."""

    model = "recallscope.architectures.mamba2_model:Mamba2"
    head_pattern: HeadPattern = Field("MVA", description="what the heads share (Tab. 5); MVA is mamba-ssm's default")
