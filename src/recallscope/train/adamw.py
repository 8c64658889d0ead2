"""AdamW over a flat vector in six tensor operations.

torch.optim.AdamW computes the same (a test holds the two together), but on one small vector most of its time is
bookkeeping in Python, which a step of two or three milliseconds feels.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from recallscope.specs import TrainSpec

EPS = 1e-8


class FlatAdamW:
    """Weights, their moments, and the number of steps taken.

    Paper: App. K.3, Tab. 9 (`tab:hyperparams`).
    """

    def __init__(self, weights: Float[Tensor, " P"], train: TrainSpec, *, decays: bool) -> None:
        self.weights = weights
        self.betas = (train.beta_1, train.beta_2)
        self.decay = train.weight_decay if decays else 0.0
        self.mean, self.square = torch.zeros_like(weights), torch.zeros_like(weights)
        self.steps = 0
        self._scratch = torch.empty_like(weights)

    @torch.no_grad()
    def step(self, grad: Float[Tensor, " P"], learning_rate: float) -> None:
        """One update: decoupled decay, then the bias-corrected moments."""
        beta_1, beta_2 = self.betas
        self.steps += 1
        if self.decay:
            self.weights.mul_(1 - learning_rate * self.decay)
        self.mean.lerp_(grad, 1 - beta_1)
        self.square.mul_(beta_2).addcmul_(grad, grad, value=1 - beta_2)
        torch.sqrt(self.square, out=self._scratch)
        self._scratch.div_(math.sqrt(1 - beta_2**self.steps)).add_(EPS)
        self.weights.addcdiv_(self.mean, self._scratch, value=-learning_rate / (1 - beta_1**self.steps))
