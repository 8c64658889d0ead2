"""Weights written down, not learned: the paper's recall circuits, each filling an ordinary model."""

from recallscope.lazy import lazy_names

_NAMES = {
    "bank": "bank_circuit",
    "circuit": "CIRCUITS Circuit Sizes circuit",
    "codes": "distortion hash_matrix jl_pair orthonormal_rows sphere_code tight_frame",
    "delta": "delta_circuit",
    "depth": "depth_circuit designed_depth",
    "gated": "gated_circuit",
    "heads": "head_circuit",
    "least_squares": "least_squares_circuit",
    "selective": "selective_circuit",
    "single": "compressive_circuit designed_circuit ideal_circuit",
}
_HOMES = {name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
