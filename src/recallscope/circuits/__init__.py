"""Weights set by hand: the paper's recall circuits, each filling an ordinary model.

Models themselves belong in `architectures`.
"""
