"""What the specs of all matrix memories share: one layer around a memory of N x P numbers per head.

With the defaults it is the bare form that theory is about: one layer, queries, keys, values and gates from windows of
two tokens, nothing else. `SomeSpec.published(embed_dim=.., state_dim=..)` is the layer as its authors have it.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from recallscope.architectures.dimensions import Heads, with_residual
from recallscope.specs import Fraction, ModelSpec, Size

# what published layers have in common: those without a convolution, and those with a short one
LAYER: dict[str, Any] = {"norm": "rms", "residual": True, "output_norm": "rms", "conv_width": 1}
CONVOLVED = LAYER | {"conv": "depthwise", "conv_width": 4, "activation": "silu"}


class MatrixMemory(Heads):
    """Fields of every such architecture; N is `state_dim`, and the values of all heads have expand * D channels."""

    PUBLISHED: ClassVar[dict[str, Any]] = LAYER  # the fields in which the published layer differs from the bare form
    FOLLOWING = ("residual",)
    num_heads: Size = Field(1, description="M")
    expand: Size = Field(1, description="channels of the values of all heads, over D")
    num_layers: Size = Field(1, description="Lambda, stacked layers")
    residual: bool = Field(description="add each layer's input to its output; on for deep models unless said otherwise")
    norm: Literal["rms", "none"] = Field("none", description="RMSNorm before each layer and before the head")
    conv: Literal["full", "depthwise", "shift"] = Field(
        "full",
        description="full: every tap of every projection is a matrix, gates included; depthwise: a number per channel "
        "and tap, after the projection, not for gates; shift: each projection sees a mix of this token and the last",
    )
    activation: Literal["silu", "none"] = Field("none", description="of q, k and v, after the convolution")
    qk_norm: Literal["l2", "none"] = Field("none", description="l2: queries and keys have length 1")
    output_norm: Literal["rms", "none"] = Field("none", description="RMSNorm of what each head reads")
    output_gate: Literal["silu", "sigmoid", "none"] = Field("none", description="of what is read, from the input")

    @classmethod
    def published(cls, **fields: Any) -> MatrixMemory:
        """The layer as its authors have it, with some fields given."""
        return cls(**(cls.PUBLISHED | fields))

    @property
    def own_law(self) -> str | None:
        """Laws speak about the bare form only, wherever its gates start."""
        return None if self.residual or self.changed - {"forget_start", "write_start"} else self.law

    @model_validator(mode="before")
    @classmethod
    def _deep_models_have_residuals(cls, data: Any) -> Any:
        return with_residual(data)

    @model_validator(mode="after")
    def _a_shift_sees_two_tokens(self) -> MatrixMemory:
        if self.conv == "shift" and self.conv_width != 2:
            raise ValueError(
                f"conv_width={self.conv_width} with conv='shift': a token shift sees this token and the last, two. "
                f"Use conv_width=2, or conv='depthwise'."
            )
        return self


class Forgetting(ModelSpec):
    """A gate that fades the state."""

    forget_start: Fraction = Field(
        0.9975, gt=0, lt=1, description="share of the state that a token leaves, at the start of training"
    )

    @property
    def fade_bias(self) -> float:
        """Where exp(-softplus) is the share at the start."""
        rate = -math.log(self.forget_start)
        return rate + math.log(-math.expm1(-rate))


class Writing(ModelSpec):
    """A gate on what is written."""

    write_start: Fraction = Field(0.12, gt=0, lt=1, description="beta, how much is written, at the start of training")

    @property
    def write_bias(self) -> float:
        """Where the sigmoid is that."""
        return logit(self.write_start)


def logit(p: float) -> float:
    """Where a sigmoid is p."""
    return math.log(p / (1 - p))
