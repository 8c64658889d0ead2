"""The paper's experiments as grids, and what they cost."""
