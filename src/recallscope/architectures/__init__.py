"""Architectures: for each a spec that is read without torch (`linear.py`) and its layers (`linear_model.py`).

Both may stand in one file where torch is there anyway, as in an architecture of one's own.
"""

from recallscope.lazy import lazy_names

_NAMES = {
    "capabilities": "Attention FactCodes HasAttention HasKeys HasOperators HasRotations HasState Operators WritesFacts",
    "layered": "Details LayerTrace LayeredModel RecallLayer Trace",
    "linear": "LinearSpec",
    "linear_model": "LinearLayer LinearMamba",
    "mamba": "FullSpec",
    "mamba_model": "FullMamba FullMixer",
    "mamba2": "Full2Spec",
    "mamba2_model": "Full2Mamba Full2Mixer",
    "model": "MissingCapabilityError RecallModel build_model",
    "multihead": "MultiHeadSpec",
    "multihead_model": "MultiHeadLayer MultiHeadMamba",
    "outer_products": "OuterProductLayer OuterProductModel OuterProducts",
    "outside": "OutsideSpec outside",
    "outside_model": "OutsideModel",
    "pretrained": "from_pretrained",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
