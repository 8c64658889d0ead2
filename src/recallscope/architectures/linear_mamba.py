"""Spec of the simplified Mamba."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from recallscope.architectures.sizes import Sizes, with_residual
from recallscope.specs import Size, architecture


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
    def effective_state(self) -> int:
        """N_eff = Lambda N (Thm 4.6)."""
        return self.num_layers * self.state_dim
