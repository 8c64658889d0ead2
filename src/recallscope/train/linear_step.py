"""Loss and gradients of a one-layer linear Mamba by hand, with no autograd graph.

The model is linear but for one product, so its weights act through few small matrices. With R = (S_B; P_out; S_C) and
M_j = R diag(w_j) P_in for tap j of the convolution, what a token adds to key, value and query is a row of Eᵀ M_jᵀ.
Those
rows are made once per step for the V tokens of the vocabulary (or for the tokens of the batch, if they are fewer) and
then looked up. P_out goes before the scan, which shrinks the values from D_in to D.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from recallscope.models import LinearMamba, RecallModel
from recallscope.models.linear import LinearLayer
from recallscope.ops.query_loss import query_loss_and_grads
from recallscope.ops.table_recall import Lookup, table_recall, table_recall_grad
from recallscope.tasks import Batch


def can_step(model: RecallModel) -> bool:
    """One linear layer; deeper models feed their output back in, and go through autograd."""
    return isinstance(model, LinearMamba) and model.spec.num_layers == 1


@torch.no_grad()
def linear_step(model: LinearMamba, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
    """The loss at the queries; its gradients are added to the parameters' `.grad`, which must exist.

    Paper: Alg. 1 (`alg:mamba`), trained as in App. K (`app:impl-details`). Twin: `model.answer`, cross-entropy,
        backward.
    """
    E, layer, tokens = model.E, model.layers[0], batch.tokens
    assert E.grad is not None
    R = torch.cat((layer.S_B, layer.P_out, layer.S_C))  # 2N+D D_in
    R_taps = R * layer.W_conv.T[:, None]  # D_conv 2N+D D_in
    M = R_taps @ layer.P_in  # D_conv 2N+D D

    whole_vocab = model.vocab_size < tokens.numel()
    source = E.T if whole_vocab else E.T[tokens.flatten()]
    ids = tokens if whole_vocab else torch.arange(tokens.numel(), device=E.device).view_as(tokens)
    table = torch.stack([torch.mm(source, M_tap.T) for M_tap in M])  # D_conv source 2N+D
    lookup = Lookup(ids, batch.query_positions, table, model.spec.state_dim)
    y = table_recall(lookup)
    if model.spec.residual:
        asked = tokens.gather(1, batch.query_positions)
        y += E.T[asked]
    loss, grad_y, _ = query_loss_and_grads(y.flatten(0, 1), E, batch.answers.flatten(), label_smoothing, grad_E=E.grad)
    if model.spec.residual:
        E.grad.T.index_add_(0, asked.flatten(), grad_y)

    grad_table = table_recall_grad(lookup, grad_y.view(y.shape))
    grad_M = torch.stack([(source.T @ part).T for part in grad_table])
    for part, M_tap in zip(grad_table, M, strict=True):
        if whole_vocab:
            E.grad.addmm_(M_tap.T, part.T)
        else:
            E.grad.T.index_add_(0, tokens.flatten(), part @ M_tap)
    _add_weight_grads(layer, R, R_taps, grad_M)
    return loss


def _add_weight_grads(
    layer: LinearLayer,
    R: Float[Tensor, "R D_in"],
    R_taps: Float[Tensor, "D_conv R D_in"],
    grad_M: Float[Tensor, "D_conv R D"],
) -> None:
    """From M_j = R diag(w_j) P_in back to S_B, P_out, S_C, W_conv and P_in."""
    weights = (layer.S_B, layer.P_out, layer.S_C)
    grad_R_taps = grad_M @ layer.P_in.T  # D_conv R D_in
    grad_R = (grad_R_taps * layer.W_conv.T[:, None]).sum(dim=0)
    for weight, grad in zip(weights, grad_R.split([len(weight) for weight in weights]), strict=True):
        assert weight.grad is not None
        weight.grad += grad
    assert layer.W_conv.grad is not None
    assert layer.P_in.grad is not None
    layer.W_conv.grad += (grad_R_taps * R).sum(dim=1).T
    layer.P_in.grad.addmm_(R_taps.flatten(0, 1).T, grad_M.flatten(0, 1))
