"""All weights of a model in one or two vectors, so that clipping and AdamW are a few operations, whatever the model."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from recallscope.models import RecallModel
from recallscope.specs import TrainSpec


class FlatWeights:
    """The model's parameters as views of flat vectors: one that weight decay shrinks, one that it leaves alone.

    The model keeps its parameters, under their names; their storage, and that of their gradients, moves here.
    """

    def __init__(self, model: RecallModel) -> None:
        self.vectors: list[nn.Parameter] = []
        spared = model.undecayed()
        named = list(model.named_parameters())
        groups = ([p for n, p in named if n not in spared], [p for n, p in named if n in spared])
        for group in groups:
            if not group:
                continue
            vector = nn.Parameter(torch.cat([p.detach().flatten() for p in group]))
            vector.grad = torch.zeros_like(vector)
            for parameter, data, grad in zip(
                group, _views(vector.data, group), _views(vector.grad, group), strict=True
            ):
                parameter.data, parameter.grad = data, grad
            self.vectors.append(vector)
        self.decayed = [bool(group) and group is groups[0] for group in groups if group]

    def optimizer(self, train: TrainSpec) -> torch.optim.AdamW:
        """AdamW over the vectors, fused into one pass each."""
        parameters = [
            {"params": [vector], "weight_decay": train.weight_decay if decays else 0.0}
            for vector, decays in zip(self.vectors, self.decayed, strict=True)
        ]
        return torch.optim.AdamW(parameters, lr=train.learning_rate, betas=(train.beta_1, train.beta_2), fused=True)

    @torch.no_grad()
    def clip(self, largest: float) -> Float[Tensor, ""]:
        """Scale the gradient down to the norm `largest` if it is longer; returns the norm it had."""
        grads = self.grads()
        norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(grad) for grad in grads]))
        scale = (largest / (norm + 1e-6)).clamp_(max=1.0)
        for grad in grads:
            grad.mul_(scale)
        return norm

    def grads(self) -> list[Tensor]:
        """The gradient vectors."""
        grads = [vector.grad for vector in self.vectors]
        assert all(grad is not None for grad in grads)
        return [grad for grad in grads if grad is not None]

    def zero_grads(self) -> None:
        """Forget the gradients."""
        for grad in self.grads():
            grad.zero_()

    def snapshot(self) -> list[Tensor]:
        """A copy of all weights."""
        return [vector.detach().clone() for vector in self.vectors]

    @torch.no_grad()
    def restore(self, snapshot: list[Tensor]) -> None:
        """Put a copy back."""
        for vector, saved in zip(self.vectors, snapshot, strict=True):
            vector.copy_(saved)


def _views(vector: Tensor, shapes: list[nn.Parameter]) -> list[Tensor]:
    pieces = vector.split([p.numel() for p in shapes])
    return [piece.view(p.shape) for piece, p in zip(pieces, shapes, strict=True)]
