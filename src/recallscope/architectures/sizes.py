"""Sizes that the specs of several architectures share."""

from __future__ import annotations

import math
from typing import Any

from pydantic import Field, model_validator

from recallscope.specs import ModelSpec, Size


def with_residual(data: Any) -> Any:
    """Fields of a model, with a residual where there are several layers, unless they say otherwise."""
    if isinstance(data, dict) and data.get("residual") is None:
        layers = data.get("num_layers", 1)
        return {**data, "residual": isinstance(layers, int) and layers > 1}
    return data


class Sizes(ModelSpec):
    """The sizes of every Mamba: D, N, how much wider it is inside, and the taps of its convolution."""

    embed_dim: Size = Field(description="D, width of the embedding")
    state_dim: Size = Field(description="N, state entries per channel")
    expand: Size = Field(2, description="D_in / D")
    conv_width: Size = Field(2, description="D_conv, taps of the causal convolution (mamba-ssm's default is 4)")

    @property
    def inner_dim(self) -> int:
        """D_in = expand * D, channels over all heads."""
        return self.expand * self.embed_dim

    @property
    def depth(self) -> int:
        """Lambda."""
        return int(getattr(self, "num_layers", 1))

    @property
    def state_entries(self) -> int:
        """S of Lem 4.5, the entries that carry the context: Lambda D_in N."""
        return self.depth * self.inner_dim * self.state_dim

    def work_per_token(self) -> float:
        """Projections, and writing and reading the state."""
        return float(self.depth * self.inner_dim * (self.embed_dim + 4 * self.state_dim))


class Heads(Sizes):
    """The channels are split into M heads."""

    num_heads: Size = Field(description="M")

    @model_validator(mode="after")
    def _heads_divide_the_channels(self) -> Heads:
        if self.inner_dim % self.num_heads:
            raise ValueError(
                f"num_heads={self.num_heads} does not divide the {self.inner_dim} channels (expand={self.expand} x "
                f"embed_dim={self.embed_dim}): every head takes P = D_in/M of them (Tab. 6). "
                f"Use num_heads={math.gcd(self.num_heads, self.inner_dim)}, or another embed_dim."
            )
        return self

    @property
    def head_dim(self) -> int:
        """P, channels per head."""
        return self.inner_dim // self.num_heads
