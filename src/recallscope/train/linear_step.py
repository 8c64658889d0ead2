"""Loss and gradients of a one-layer linear Mamba in some forty tensor operations, with no autograd graph.

The model is linear but for one product, so its weights act through few small matrices. With R = (S_B; P_out; S_C) and
M_j = R diag(w_j) P_in for tap j of the convolution, what a token adds to key, value and query is a row of (E^T)
M_j^T. Those
rows are made once per step for the V tokens of the vocabulary (or for the tokens of the batch, if they are fewer)
and then
gathered. P_out goes before the scan, which shrinks the values from D_in to D; queries are computed where asked.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from recallscope.models import LinearMamba, RecallModel
from recallscope.models.linear import LinearLayer
from recallscope.ops.query_loss import query_loss_and_grads
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
    E, layer = model.E, model.layers[0]
    assert isinstance(layer, LinearLayer)
    assert E.grad is not None
    N, D = model.spec.state_dim, model.spec.embed_dim
    (rows, L), Q = batch.tokens.shape, batch.query_positions.shape[1]
    asked = (batch.query_positions + L * torch.arange(rows, device=E.device)[:, None]).flatten()  # of rows * L tokens
    tokens = batch.tokens.flatten()

    R = torch.cat((layer.S_B, layer.P_out, layer.S_C))  # 2N+D D_in
    R_taps = R * layer.W_conv.T[:, None]  # D_conv 2N+D D_in
    M = R_taps @ layer.P_in  # D_conv 2N+D D
    whole_vocab = model.vocab_size < len(tokens)
    source = E.T if whole_vocab else E.T[tokens]
    ids = _table_rows(batch.tokens, len(source), model.spec.conv_width, whole_vocab)  # rows*L D_conv
    ids_asked = ids[asked]
    written = _lookup(ids, _table(source, M[:, : N + D])).view(rows, L, N + D)
    C = _lookup(ids_asked, _table(source, M[:, N + D :])).view(rows, Q, N)
    B, u = written.split((N, D), dim=-1)

    seen = torch.arange(L, device=E.device) <= batch.query_positions[..., None]  # rows Q L
    alpha = (C @ B.mT).mul_(seen)
    y = (alpha @ u).flatten(0, 1)
    if model.spec.residual:
        y += E.T[tokens[asked]]
    loss, grad_y, _ = query_loss_and_grads(y, E, batch.answers.flatten(), label_smoothing, grad_E=E.grad)
    if model.spec.residual:
        E.grad.T.index_add_(0, tokens[asked], grad_y)

    grad_y = grad_y.view(rows, Q, D)
    grad_alpha = (grad_y @ u.mT).mul_(seen)
    grad_written = torch.cat((grad_alpha.mT @ C, alpha.mT @ grad_y), dim=-1).flatten(0, 1)
    grad_C = (grad_alpha @ B).flatten(0, 1)
    grad_table = torch.cat(
        (_lookup_grad(ids, grad_written, len(source)), _lookup_grad(ids_asked, grad_C, len(source))), dim=-1
    )  # D_conv source 2N+D

    grad_M = grad_table.mT @ source
    grad_source = torch.einsum("jsr,jrd->sd", grad_table, M)
    if whole_vocab:
        E.grad.T.add_(grad_source)
    else:
        E.grad.T.index_add_(0, tokens, grad_source)
    _add_weight_grads(layer, R, R_taps, grad_M)
    return loss


def _table_rows(
    tokens: Int[Tensor, "rows L"], size: int, D_conv: int, whole_vocab: bool
) -> Int[Tensor, "tokens D_conv"]:
    """Where tap j finds what token t convolves: row x_{t-D_conv+1+j} of part j, or the zero row before the start."""
    rows, L = tokens.shape
    of_token = tokens if whole_vocab else torch.arange(rows * L, device=tokens.device).view(rows, L)
    shifted = [
        pad(
            of_token[:, : max(L - back, 0)] + size * (D_conv - 1 - back),
            (min(back, L), 0),
            value=size * D_conv,
        )
        for back in range(D_conv - 1, -1, -1)
    ]
    return torch.stack(shifted, dim=-1).view(rows * L, D_conv)


def _table(source: Float[Tensor, "S D"], M: Float[Tensor, "D_conv R D"]) -> Float[Tensor, "entries R"]:
    """source M_jᵀ for every tap, one below the other, and a zero row."""
    D_conv, width, _ = M.shape
    table = source.new_empty(D_conv * len(source) + 1, width)
    torch.matmul(source, M.mT, out=table[:-1].view(D_conv, len(source), width))
    table[-1] = 0
    return table


def _lookup(ids: Int[Tensor, "tokens D_conv"], table: Float[Tensor, "entries R"]) -> Float[Tensor, "tokens R"]:
    """The convolution: one row per tap, added up."""
    return embedding_bag(ids, table, mode="sum")


def _lookup_grad(
    ids: Int[Tensor, "tokens D_conv"], grad: Float[Tensor, "tokens R"], size: int
) -> Float[Tensor, "D_conv S R"]:
    """Gradient of `_lookup` by its table, without the zero row."""
    D_conv = ids.shape[1]
    total = grad.new_zeros(D_conv * size + 1, grad.shape[1])
    for tap in range(D_conv):
        total.index_add_(0, ids[:, tap], grad)
    return total[:-1].view(D_conv, size, grad.shape[1])


def _add_weight_grads(
    layer: LinearLayer,
    R: Float[Tensor, "R D_in"],
    R_taps: Float[Tensor, "D_conv R D_in"],
    grad_M: Float[Tensor, "D_conv R D"],
) -> None:
    """From M_j = R diag(w_j) P_in back to S_B, P_out, S_C, W_conv and P_in."""
    weights = (layer.S_B, layer.P_out, layer.S_C)
    grad_R_taps = grad_M @ layer.P_in.T  # D_conv R D_in
    grad_R = torch.einsum("jrc,cj->rc", grad_R_taps, layer.W_conv)
    for weight, grad in zip(weights, grad_R.split([len(weight) for weight in weights]), strict=True):
        assert weight.grad is not None
        weight.grad += grad
    assert layer.W_conv.grad is not None
    assert layer.P_in.grad is not None
    layer.W_conv.grad += (grad_R_taps * R).sum(dim=1).T
    layer.P_in.grad += (R_taps.mT @ grad_M).sum(dim=0)
