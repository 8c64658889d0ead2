"""Weights written down, not learned: the paper's recall circuits, each filling an ordinary model."""

from recallscope.circuits.codes import (
    distortion,
    hash_matrix,
    jl_pair,
    orthonormal_rows,
    sphere_code,
    tight_frame,
)
from recallscope.circuits.depth import depth_circuit, designed_depth
from recallscope.circuits.heads import head_circuit
from recallscope.circuits.selective import selective_circuit
from recallscope.circuits.single import compressive_circuit, designed_circuit, ideal_circuit

__all__ = [
    "compressive_circuit",
    "depth_circuit",
    "designed_circuit",
    "designed_depth",
    "distortion",
    "hash_matrix",
    "head_circuit",
    "ideal_circuit",
    "jl_pair",
    "orthonormal_rows",
    "selective_circuit",
    "sphere_code",
    "tight_frame",
]
