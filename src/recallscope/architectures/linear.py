"""Spec of the simplified Mamba."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from recallscope.architectures.dimensions import MambaDimensions, with_residual
from recallscope.specs import Size, architecture


@architecture("linear")
class LinearSpec(MambaDimensions):
    """Simplified Mamba, one layer (Alg. 1, `alg:mamba`) or stacked with residuals (Alg. 3, `app-alg:mamba-layers`)."""

    model = "recallscope.architectures.linear_model:LinearMamba"
    law = "trained-sharing"
    FOLLOWING = ("residual",)
    num_layers: Size = Field(1, description="Lambda, stacked layers")
    residual: bool = Field(description="add each layer's input to its output; on for deep models unless said otherwise")

    @model_validator(mode="before")
    @classmethod
    def _deep_models_have_residuals(cls, data: Any) -> Any:
        return with_residual(data)

    @property
    def effective_state(self) -> int:
        """N_eff = Lambda N (Thm 4.6)."""
        return self.num_layers * self.state_dim
