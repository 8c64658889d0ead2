"""Architectures: for each a spec that is read without torch (`linear.py`) and its layers (`linear_model.py`).

Both may stand in one file where torch is there anyway, as in an architecture of one's own.
"""

from recallscope.lazy import lazy_names

_NAMES = {
    "attention_model": "SoftmaxAttention",
    "capabilities": "Attention FactCodes HasAttention HasKeys HasOperators HasRotations HasState Operators WritesFacts",
    "delta_net_model": "DeltaNet",
    "gated_delta_net_model": "GatedDeltaNet",
    "gla_model": "GLA",
    "kda_model": "KDA",
    "layered": "Details LayerTrace LayeredModel RecallLayer Trace",
    "linear": "LinearSpec",
    "linear_attention_model": "LinearAttention",
    "linear_model": "LinearLayer LinearMamba",
    "mamba": "FullSpec",
    "mamba_model": "FullMamba FullMixer",
    "mamba2": "Full2Spec",
    "mamba2_model": "Full2Mamba Full2Mixer",
    "matrix_memory": "AttentionSpec DeltaNetSpec GLASpec GatedDeltaNetSpec KDASpec LinearAttentionSpec MLSTMSpec "
    "MatrixMemory MesaNetSpec RWKV7Spec RetNetSpec",
    "matrix_memory_model": "DeltaLayer Drive Gate MemoryLayer MemoryModel Update",
    "mesa_net_model": "MesaNet",
    "mlstm_model": "MLSTM",
    "model": "MissingCapabilityError RecallModel build_model",
    "multihead": "MultiHeadSpec",
    "multihead_model": "MultiHeadLayer MultiHeadMamba",
    "outer_products": "OuterProductLayer OuterProductModel OuterProducts",
    "outside": "OutsideSpec outside",
    "outside_model": "OutsideModel",
    "pretrained": "from_pretrained",
    "retnet_model": "RetNet",
    "rwkv7_model": "RWKV7",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
