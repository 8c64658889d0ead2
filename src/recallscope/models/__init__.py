"""The paper's models: simplified Mamba, simplified Mamba-2 with heads, full Mamba with its switches."""

from recallscope.models.base import RecallLayer, RecallModel
from recallscope.models.build import blank_model, build_model
from recallscope.models.details import Details
from recallscope.models.full import FullLayer, FullMamba
from recallscope.models.full2 import Full2Layer, Full2Mamba
from recallscope.models.full2_mixer import Full2Mixer
from recallscope.models.full_mixer import FullMixer
from recallscope.models.linear import LinearLayer, LinearMamba
from recallscope.models.multihead import MultiHeadLayer, MultiHeadMamba
from recallscope.models.pretrained import from_pretrained
from recallscope.models.trace import LayerTrace, Trace

__all__ = [
    "Details",
    "Full2Layer",
    "Full2Mamba",
    "Full2Mixer",
    "FullLayer",
    "FullMamba",
    "FullMixer",
    "LayerTrace",
    "LinearLayer",
    "LinearMamba",
    "MultiHeadLayer",
    "MultiHeadMamba",
    "RecallLayer",
    "RecallModel",
    "Trace",
    "blank_model",
    "build_model",
    "from_pretrained",
]
