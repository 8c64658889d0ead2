"""The update of a step: all weights of a model in one or two vectors, AdamW over each, and the learning rate.

Flat vectors make clipping and AdamW a few operations, whatever the model. torch.optim.AdamW computes the same (a test
holds the two together), but on one small vector most of its time is bookkeeping in Python, which a step of two or three
milliseconds feels.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from recallscope.architectures.model import RecallModel
from recallscope.specs import TrainSpec

EPS = 1e-8


def learning_rate(train: TrainSpec, step: int, target_from: int = 0) -> float:
    """Rate of optimiser step `step` = 0, 1, ...: linear up to the base rate, flat, then half a cosine down to 0.

    A curriculum stays on the flat part until it trains on its target, from step `target_from`.

    Paper: Tab. 9 (`tab:hyperparams`).
    """
    decay_from = max(train.warmup_steps + train.flat_steps, target_from)
    into_warmup, into_decay = step + 1, step - decay_from
    if into_warmup <= train.warmup_steps:
        return train.learning_rate * into_warmup / train.warmup_steps
    if into_decay <= 0:
        return train.learning_rate
    decay_steps = train.total_steps - decay_from
    return train.learning_rate * (1 + math.cos(math.pi * min(into_decay / decay_steps, 1.0))) / 2


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


class FlatWeights:
    """The model's parameters as views of flat vectors: one that weight decay shrinks, one that it leaves alone.

    The model keeps its parameters, under their names; their storage, and that of their gradients, moves here. A model
    with parameters of several types has vectors of each. Buffers, such as running means, are kept with the weights.
    """

    def __init__(self, model: RecallModel, train: TrainSpec) -> None:
        spared = model.undecayed()
        groups: dict[tuple[bool, str], list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                groups.setdefault((name not in spared, str(parameter.dtype)), []).append(parameter)
        self.model = model
        self.vectors: list[Tensor] = []
        self.grads: list[Tensor] = []
        self.optimizers: list[FlatAdamW] = []
        for (decays, _), group in sorted(groups.items(), key=lambda item: (not item[0][0], item[0][1])):
            vector = torch.cat([p.detach().flatten() for p in group])
            grad = torch.zeros_like(vector)
            for parameter, data, part in zip(group, _views(vector, group), _views(grad, group), strict=True):
                parameter.data, parameter.grad = data, part
            self.vectors.append(vector)
            self.grads.append(grad)
            self.optimizers.append(FlatAdamW(vector, train, decays=decays))

    @property
    def buffers(self) -> list[Tensor]:
        """The model's buffers as they are now: a module may put new tensors in their places."""
        return list(self.model.buffers())

    def step(self, learning_rate: float, largest_norm: float, scale: float = 1.0) -> bool:
        """Scale the gradients, clip them to a global norm, update the weights, and forget the gradients.

        False if the weights are not finite any more, which no later step mends. That is looked at only where the norm
        says that it may be so.
        """
        norm = scale * sum(float(torch.dot(grad, grad)) for grad in self.grads) ** 0.5
        factor = scale * min(1.0, largest_norm / (norm + 1e-6))
        for grad, optimizer in zip(self.grads, self.optimizers, strict=True):
            if factor != 1.0:
                grad.mul_(factor)
            optimizer.step(grad, learning_rate)
            grad.zero_()
        return math.isfinite(norm) or all(bool(vector.isfinite().all()) for vector in self.vectors)

    def snapshot(self) -> list[Tensor]:
        """A copy of all weights and buffers."""
        return [tensor.clone() for tensor in (*self.vectors, *self.buffers)]

    def restore(self, snapshot: list[Tensor]) -> None:
        """Put a copy back."""
        for tensor, saved in zip((*self.vectors, *self.buffers), snapshot, strict=True):
            tensor.copy_(saved)

    def state(self) -> dict[str, Tensor]:
        """Weights, moments and buffers by name, for a checkpoint."""
        tensors = {f"buffer.{index}": buffer for index, buffer in enumerate(self.buffers)}
        for index, optimizer in enumerate(self.optimizers):
            own = {"weights": optimizer.weights, "mean": optimizer.mean, "square": optimizer.square}
            tensors |= {f"{name}.{index}": tensor for name, tensor in own.items()}
        return tensors

    def load_state(self, tensors: dict[str, Tensor], steps: int) -> None:
        """What `state` gave, put back; the optimiser has taken `steps` steps."""
        for name, tensor in self.state().items():
            tensor.copy_(tensors[name])
        for optimizer in self.optimizers:
            optimizer.steps = steps


def _views(vector: Tensor, shapes: list[nn.Parameter]) -> list[Tensor]:
    pieces = vector.split([p.numel() for p in shapes])
    return [piece.view(p.shape) for piece, p in zip(pieces, shapes, strict=True)]
