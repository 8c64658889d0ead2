"""Label-smoothed cross-entropy at the queries, fused with the tied head, in chunks.

Logits are never kept: a chunk of queries is scored, turned into probabilities, and at once into gradients of the
hidden vectors and of the embedding. Memory is bounded by the chunk, whatever V.
"""

import ctypes
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from recallscope.ops.compiled import address, call, fits, library

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

    The gradient by the logits is softmax - (1 - e) one-hot - e/V: one entry per query is changed in place, and the
    last term, the same everywhere, is of rank one and never spread out.
    """
    Q, V, eps = len(y), E.shape[1], label_smoothing
    rows = max(1, min(Q, CHUNK_ENTRIES // V))
    total_E = torch.zeros_like(E) if grad_E is None else grad_E
    grad_y = torch.empty_like(y)
    surprise = y.new_empty(Q)  # log-normaliser less (1 - e) times the logit of the answer
    buffer = y.new_empty(rows, V)
    to_gradient = _softmax_gradient_compiled if fits(y) and library() is not None else _softmax_gradient_torch
    for start in range(0, Q, rows):
        y_part, asked = y[start : start + rows], answers[start : start + rows]
        p = buffer[: len(y_part)]
        torch.mm(y_part, E, out=p)
        surprise[start : start + rows] = to_gradient(p, asked, eps)
        torch.mm(p, E.T, out=grad_y[start : start + rows])
        total_E.addmm_(y_part.T, p, alpha=1 / Q)
    mean_E, sum_y = E.mean(dim=1), y.sum(dim=0)
    loss = (surprise.sum() - eps * torch.dot(sum_y, mean_E)) / Q
    grad_y.sub_(mean_E, alpha=eps).div_(Q)
    total_E.sub_(sum_y[:, None], alpha=eps / (Q * V))
    return loss, grad_y, total_E


def _softmax_gradient_torch(
    logits: Float[Tensor, "Q V"], answers: Int[Tensor, " Q"], label_smoothing: float
) -> Float[Tensor, " Q"]:
    """Logits to softmax - (1 - e) one-hot, in place; returns log-normaliser less (1 - e) times the right logit."""
    p, asked, keep = logits, answers[:, None], 1 - label_smoothing
    right, highest = p.gather(1, asked).squeeze(1), p.amax(dim=1)
    torch.softmax(p, dim=1, out=p)
    # the largest probability is 1 / sum exp(logit - highest), so it gives the normaliser without another exp
    normaliser = highest - p.amax(dim=1).log_()
    p.scatter_add_(1, asked, p.new_full((1, 1), -keep).expand_as(asked))
    return normaliser.sub_(right, alpha=keep)


def _softmax_gradient_compiled(
    logits: Float[Tensor, "Q V"], answers: Int[Tensor, " Q"], label_smoothing: float
) -> Float[Tensor, " Q"]:
    """The same by our C kernel, in one visit to each row."""
    right, highest, mass = logits.new_empty(3, len(logits))
    answers = answers.contiguous()
    arguments = SoftmaxArguments(
        *logits.shape, label_smoothing, *(address(tensor) for tensor in (answers, logits, right, highest, mass))
    )
    call("softmax_gradient", arguments, logits.dtype)
    return highest.add_(mass.log_()).sub_(right, alpha=1 - label_smoothing)


class SoftmaxArguments(ctypes.Structure):
    """`softmax_arguments` of csrc/arguments.h."""

    _fields_ = [
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("smoothing", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in ("answers", "logits", "right", "highest", "mass")),
    ]


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
