"""Training: the loop, the optimiser, checkpoints and weight files.

Running many trainings belongs in `runs`.
"""
