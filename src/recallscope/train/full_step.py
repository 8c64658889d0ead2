"""Loss and gradients of a one-layer full Mamba, forward and backward written out around the C kernels.

Three things make it cheap. What comes before the convolution sees one token at a time, so norm and in_proj are
done once for the V tokens of the vocabulary, and gathered. What follows the scan is asked for at the queries
only: C, gate, out_proj, last norm and head are. And between them stand two kernels, convolution and scan.
The parts, and the way back through each, are in `full_parts.py`.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from recallscope.models import FullMamba, RecallModel
from recallscope.models.details import OURS
from recallscope.ops import pick_form
from recallscope.ops.query_loss import query_loss_and_grads
from recallscope.tasks import Batch
from recallscope.train.full_parts import convolve, gate_and_project, grad_of, norm, read_identity, read_selective


def can_full_step(model: RecallModel) -> bool:
    """One layer of full Mamba as a spec describes it, where the C kernels compute; the rest goes through autograd."""
    return (
        isinstance(model, FullMamba)
        and model.spec.num_layers == 1
        and model.details == OURS
        and pick_form(model.E, model.spec.state_dim) == "compiled"
    )


@torch.no_grad()
def full_step(model: FullMamba, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
    """The loss at the queries; its gradients are added to the parameters' `.grad`, which must exist.

    Paper: Eq. 1 (`eq:output_block`), trained as in App. K (`app:impl-details`). Twin: `model.answer`,
        cross-entropy, backward.
    """
    E, layer, spec = model.E, model.layers[0], model.spec
    rows, L = batch.tokens.shape
    asked = (batch.query_positions + L * torch.arange(rows)[:, None]).flatten()  # of rows * L tokens
    tokens = batch.tokens.flatten()
    whole_vocab = model.vocab_size < len(tokens)
    source = E.T.contiguous() if whole_vocab else E.T[tokens]
    ids = batch.tokens if whole_vocab else torch.arange(len(tokens)).view(rows, L)
    ids_asked = ids.flatten()[asked]

    u, norm_back = norm(layer.norm, source)
    W_x, W_z = layer.mixer.in_proj.weight.split(spec.inner_dim) if spec.gate else (layer.mixer.in_proj.weight, None)
    x_hat, conv_back = convolve(layer.mixer, u @ W_x.T, ids)
    y_hat, read_back = (read_selective if spec.transition == "selective" else read_identity)(
        layer.mixer, x_hat, asked, batch.query_positions
    )
    u_q = u[ids_asked]
    y, out_back = gate_and_project(layer.mixer, y_hat, u_q, W_z)
    if spec.residual:
        y += source[ids_asked]
    said, last_back = norm(model.norm_f, y)
    loss, grad, _ = query_loss_and_grads(said, E, batch.answers.flatten(), label_smoothing, grad_E=grad_of(E))

    grad = last_back(grad)
    grad_y_hat, grad_u_q = out_back(grad)
    grad_in = conv_back(read_back(grad_y_hat))
    grad_of(layer.mixer.in_proj.weight)[: spec.inner_dim].addmm_(grad_in.T, u)
    grad_u = grad_in @ W_x
    if grad_u_q is not None:
        grad_u.index_add_(0, ids_asked, grad_u_q)
    grad_source = norm_back(grad_u)
    if spec.residual:
        grad_source.index_add_(0, ids_asked, grad)
    if whole_vocab:
        grad_of(E).add_(grad_source.T)
    else:
        grad_of(E).T.index_add_(0, tokens, grad_source)
    return loss
