"""The learning rate over a run: warm-up, flat, cosine."""

import math

from recallscope.specs import TrainSpec


def learning_rate(train: TrainSpec, step: int) -> float:
    """Rate of optimiser step `step` = 0, 1, ...: linear up to the base rate, flat, then half a cosine down to 0.

    Paper: Tab. 9 (`tab:hyperparams`).
    """
    into_warmup, into_decay = step + 1, step - train.warmup_steps - train.flat_steps
    if into_warmup <= train.warmup_steps:
        return train.learning_rate * into_warmup / train.warmup_steps
    if into_decay <= 0:
        return train.learning_rate
    return train.learning_rate * (1 + math.cos(math.pi * min(into_decay / train.decay_steps, 1.0))) / 2
