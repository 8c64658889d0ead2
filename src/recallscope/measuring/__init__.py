"""What a trained or trainable model is worth: its accuracy, its state size and its capacity.

Checkpoints of language models are probed in `measuring.checkpoints`; the mechanism inside a model belongs in `interp`.
"""
