"""Architectures: specs that load without torch (`mamba.py`, `matrix_memory.py`), and the models and layers behind them.

Tensor operations that need no module belong in `ops`,
weights set by hand in `circuits`, measurements on a model in `interp`.
"""
