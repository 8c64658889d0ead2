"""Architectures: a spec that loads without torch (`linear_mamba.py`), and its layers (`linear_mamba_model.py`).

`matrix_memory.py` has the specs of all matrix memories. Tensor operations that need no module belong in `ops`,
weights set by hand in `circuits`, measurements on a model in `interp`.
"""
