"""Pure functions on tensors; each fast form has a plain twin beside it, and a test compares them.

Parameters and modules belong in `architectures`.
"""
