"""Architectures: for each a spec that is read without torch (`linear.py`) and its layers (`linear_model.py`).

Both may stand in one file where torch is there anyway, as in an architecture of one's own.
"""

from recallscope.lazy import lazy_names

_CAPABILITIES = (
    "Attention",
    "FactCodes",
    "HasAttention",
    "HasKeys",
    "HasOperators",
    "HasRotations",
    "HasState",
    "WritesFacts",
)
_HOMES = dict.fromkeys(_CAPABILITIES, "recallscope.architectures.capabilities") | {
    "Details": "recallscope.architectures.details",
    "Full2Mamba": "recallscope.architectures.mamba2_model",
    "Full2Mixer": "recallscope.architectures.mamba2_model",
    "Full2Spec": "recallscope.architectures.mamba2",
    "FullMamba": "recallscope.architectures.mamba_model",
    "FullMixer": "recallscope.architectures.mamba_model",
    "FullSpec": "recallscope.architectures.mamba",
    "LayerTrace": "recallscope.architectures.layered",
    "LayeredModel": "recallscope.architectures.layered",
    "LinearLayer": "recallscope.architectures.linear_model",
    "LinearMamba": "recallscope.architectures.linear_model",
    "LinearSpec": "recallscope.architectures.linear",
    "MissingCapabilityError": "recallscope.architectures.model",
    "MultiHeadLayer": "recallscope.architectures.multihead_model",
    "MultiHeadMamba": "recallscope.architectures.multihead_model",
    "MultiHeadSpec": "recallscope.architectures.multihead",
    "Operators": "recallscope.architectures.operators",
    "OuterProductLayer": "recallscope.architectures.outer_products",
    "OuterProductModel": "recallscope.architectures.outer_products",
    "OuterProducts": "recallscope.architectures.outer_products",
    "OutsideModel": "recallscope.architectures.outside_model",
    "OutsideSpec": "recallscope.architectures.outside",
    "RecallLayer": "recallscope.architectures.layered",
    "RecallModel": "recallscope.architectures.model",
    "Trace": "recallscope.architectures.layered",
    "build_model": "recallscope.architectures.model",
    "from_pretrained": "recallscope.architectures.pretrained",
    "outside": "recallscope.architectures.outside",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
