"""All weights of a model in one or two vectors, so that clipping and AdamW are a few operations, whatever the model."""

import torch
from torch import Tensor, nn

from recallscope.models import RecallModel
from recallscope.specs import TrainSpec
from recallscope.train.adamw import FlatAdamW


class FlatWeights:
    """The model's parameters as views of flat vectors: one that weight decay shrinks, one that it leaves alone.

    The model keeps its parameters, under their names; their storage, and that of their gradients, moves here.
    """

    def __init__(self, model: RecallModel, train: TrainSpec) -> None:
        spared = model.undecayed()
        named = list(model.named_parameters())
        self.vectors: list[Tensor] = []
        self.grads: list[Tensor] = []
        self.optimizers: list[FlatAdamW] = []
        for decays in (True, False):
            group = [p for name, p in named if (name not in spared) is decays]
            if not group:
                continue
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
        """A copy of all weights."""
        return [vector.clone() for vector in self.vectors]

    def restore(self, snapshot: list[Tensor]) -> None:
        """Put a copy back."""
        for vector, saved in zip(self.vectors, snapshot, strict=True):
            vector.copy_(saved)

    def state(self) -> dict[str, Tensor]:
        """Weights and moments by name, for a checkpoint."""
        tensors: dict[str, Tensor] = {}
        for index, (vector, optimizer) in enumerate(zip(self.vectors, self.optimizers, strict=True)):
            tensors |= {
                f"weights.{index}": vector,
                f"mean.{index}": optimizer.mean,
                f"square.{index}": optimizer.square,
            }
        return tensors

    def load_state(self, tensors: dict[str, Tensor], steps: int) -> None:
        """What `state` gave, put back; the optimiser has taken `steps` steps."""
        for index, (vector, optimizer) in enumerate(zip(self.vectors, self.optimizers, strict=True)):
            vector.copy_(tensors[f"weights.{index}"])
            optimizer.mean.copy_(tensors[f"mean.{index}"])
            optimizer.square.copy_(tensors[f"square.{index}"])
            optimizer.steps = steps


def _views(vector: Tensor, shapes: list[nn.Parameter]) -> list[Tensor]:
    pieces = vector.split([p.numel() for p in shapes])
    return [piece.view(p.shape) for piece, p in zip(pieces, shapes, strict=True)]
