"""Weights written down, not learned: the paper's recall circuits, each filling an ordinary model."""

from recallscope.lazy import lazy_names

_HOMES = {
    "CIRCUITS": "recallscope.circuits.circuit",
    "Circuit": "recallscope.circuits.circuit",
    "Sizes": "recallscope.circuits.circuit",
    "circuit": "recallscope.circuits.circuit",
    "compressive_circuit": "recallscope.circuits.single",
    "depth_circuit": "recallscope.circuits.depth",
    "designed_circuit": "recallscope.circuits.single",
    "designed_depth": "recallscope.circuits.depth",
    "distortion": "recallscope.circuits.codes",
    "hash_matrix": "recallscope.circuits.codes",
    "head_circuit": "recallscope.circuits.heads",
    "ideal_circuit": "recallscope.circuits.single",
    "jl_pair": "recallscope.circuits.codes",
    "orthonormal_rows": "recallscope.circuits.codes",
    "selective_circuit": "recallscope.circuits.selective",
    "sphere_code": "recallscope.circuits.codes",
    "tight_frame": "recallscope.circuits.codes",
}
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
