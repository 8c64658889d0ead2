"""All weights of a model in one or two vectors, so that clipping and AdamW are a few operations, whatever the model."""

import torch
from torch import Tensor, nn

from recallscope.architectures.model import RecallModel
from recallscope.specs import TrainSpec
from recallscope.train.adamw import FlatAdamW


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
        self.buffers = list(model.buffers())
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

    def step(self, learning_rate: float, largest_norm: float, scale: float = 1.0) -> None:
        """Scale the gradients, clip them to a global norm, update the weights, and forget the gradients."""
        norm = scale * sum(float(torch.dot(grad, grad)) for grad in self.grads) ** 0.5
        factor = scale * min(1.0, largest_norm / (norm + 1e-6))
        for grad, optimizer in zip(self.grads, self.optimizers, strict=True):
            if factor != 1.0:
                grad.mul_(factor)
            optimizer.step(grad, learning_rate)
            grad.zero_()

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
        for index, (vector, optimizer) in enumerate(zip(self.vectors, self.optimizers, strict=True)):
            tensors |= {
                f"weights.{index}": vector,
                f"mean.{index}": optimizer.mean,
                f"square.{index}": optimizer.square,
            }
        return tensors

    def load_state(self, tensors: dict[str, Tensor], steps: int) -> None:
        """What `state` gave, put back; the optimiser has taken `steps` steps."""
        for index, buffer in enumerate(self.buffers):
            buffer.copy_(tensors[f"buffer.{index}"])
        for index, (vector, optimizer) in enumerate(zip(self.vectors, self.optimizers, strict=True)):
            vector.copy_(tensors[f"weights.{index}"])
            optimizer.mean.copy_(tensors[f"mean.{index}"])
            optimizer.square.copy_(tensors[f"square.{index}"])
            optimizer.steps = steps


def _views(vector: Tensor, shapes: list[nn.Parameter]) -> list[Tensor]:
    pieces = vector.split([p.numel() for p in shapes])
    return [piece.view(p.shape) for piece, p in zip(pieces, shapes, strict=True)]
