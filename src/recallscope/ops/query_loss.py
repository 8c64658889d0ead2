"""Label-smoothed cross-entropy at the queries, fused with the tied head, in chunks.

Logits are never kept: a chunk of queries is scored, turned into probabilities, and at once into gradients of the
hidden vectors and of the embedding. Memory is bounded by the chunk, whatever V.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

CHUNK_ENTRIES = 2**20  # logits alive at a time: 4 MB, the size at which one core still finds them in its cache


def plain_query_loss(
    y: Float[Tensor, "Q D"], E: Float[Tensor, "D V"], answers: Int[Tensor, " Q"], label_smoothing: float
) -> Float[Tensor, ""]:
    """Mean over queries of the cross-entropy against (1 - e) one-hot + e/V. The slow twin."""
    return cross_entropy(y @ E, answers, label_smoothing=label_smoothing)


def query_loss(
    y: Float[Tensor, "Q D"], E: Float[Tensor, "D V"], answers: Int[Tensor, " Q"], label_smoothing: float
) -> Float[Tensor, ""]:
    """The same value and gradients as `plain_query_loss`, the gradients computed with the value."""
    loss: Tensor = _QueryLoss.apply(y, E, answers, label_smoothing)
    return loss


def query_loss_and_grads(
    y: Float[Tensor, "Q D"],
    E: Float[Tensor, "D V"],
    answers: Int[Tensor, " Q"],
    label_smoothing: float,
    grad_E: Float[Tensor, "D V"] | None = None,
) -> tuple[Float[Tensor, ""], Float[Tensor, "Q D"], Float[Tensor, "D V"]]:
    """Loss, its gradient by y, and its gradient by E (added to `grad_E` in place, if given).

    The smoothing term and the one-hot term of the gradient are of rank one and of one entry per query; only the
    softmax needs the logits.
    """
    Q, V, eps = len(y), E.shape[1], label_smoothing
    rows = max(1, min(Q, CHUNK_ENTRIES // V))
    total_E = torch.zeros_like(E) if grad_E is None else grad_E
    grad_y = torch.empty_like(y)
    log_normaliser = y.new_empty(Q)
    buffer = y.new_empty(rows, V)
    for start in range(0, Q, rows):
        y_part = y[start : start + rows]
        p = buffer[: len(y_part)]
        torch.mm(y_part, E, out=p)
        highest = p.amax(dim=1)
        torch.softmax(p, dim=1, out=p)
        # the largest probability is 1 / sum exp(logit - highest), so it gives the normaliser without another exp
        torch.sub(highest, p.amax(dim=1).log_(), out=log_normaliser[start : start + rows])
        torch.mm(p, E.T, out=grad_y[start : start + rows])
        total_E.addmm_(y_part.T, p, alpha=1 / Q)
    right = E.T[answers]  # Q D, the embedding of the answer
    mean_E = E.mean(dim=1)
    target = right.mul_(1 - eps).add_(mean_E, alpha=eps)  # what the loss pulls y towards
    loss = (log_normaliser.sum() - torch.dot(y.flatten(), target.flatten())) / Q
    grad_y.sub_(target).div_(Q)
    total_E.T.index_add_(0, answers, y, alpha=-(1 - eps) / Q)
    total_E.sub_(y.sum(dim=0)[:, None], alpha=eps / (Q * V))
    return loss, grad_y, total_E


class _QueryLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, E: Tensor, answers: Tensor, label_smoothing: float) -> Tensor:
        loss, grad_y, grad_E = query_loss_and_grads(y, E, answers, label_smoothing)
        ctx.save_for_backward(grad_y, grad_E)
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        (grad,) = grads
        grad_y, grad_E = ctx.saved_tensors
        return grad * grad_y, grad * grad_E, None, None
