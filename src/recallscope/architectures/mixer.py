"""A bare mixer of the user's own, (batch, L, D) -> (batch, L, D), wrapped into a model: `mixer:my_nets.py:MyMixer`.

This is the interface of the layers of flash-linear-attention, zoology and mad-lab. What is added around it is stated in
the fields, the same for every mixer: an embedding, and `num_layers` times x + mixer(conv(norm(x))), then norm and head.
"""

from __future__ import annotations

from pydantic import Field

from recallscope.architectures.user_module import ModuleSpec
from recallscope.specs import Size


class MixerSpec(ModuleSpec):
    """A model around a mixer; fields beside these are the arguments of the mixer's constructor."""

    model = "recallscope.architectures.mixer_model:MixerModel"

    width: Size = Field(description="D, of the embedding and of what the mixer reads and returns")
    num_layers: Size = Field(2, description="mixers, one after another, each with a residual connection")
    short_conv: Size = Field(3, description="taps of the causal convolution before every mixer, as in zoology; 1: none")
