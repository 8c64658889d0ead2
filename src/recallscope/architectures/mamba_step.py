"""Loss and gradients of a one-layer full Mamba, forward and backward written out around the C kernels.

Three things make it cheap. What comes before the convolution sees one token at a time, so norm and in_proj are
done once for the V tokens of the vocabulary, and gathered. What follows the scan is asked for at the queries
only: C, gate, out_proj, last norm and head are. And between them stand two kernels, convolution and scan.

Every part below returns its result and a function from the gradient by the result to the gradient by its input; that
function adds the gradients of the part's weights on its way.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from recallscope.ops.conv import ConvInputs, gathered_conv, gathered_conv_backward
from recallscope.ops.query_loss import query_loss_and_grads
from recallscope.ops.selective_scan_compiled import ScanInputs, scan_backward, scan_forward
from recallscope.tasks.batch import Batch

if TYPE_CHECKING:
    from recallscope.architectures.mamba_model import Mamba, MambaMixer

Back = Callable[[Tensor], Tensor]


@torch.no_grad()
def full_step(model: "Mamba", batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
    """The loss at the queries; its gradients are added to the parameters' `.grad`, which must exist.

    Paper: Eq. 1 (`eq:output_block`), trained as in App. K (`app:impl-details`). Twin: `model.answer`,
        cross-entropy, backward.
    """
    E, layer, spec = model.E, model.layers[0], model.spec
    mixer = cast("MambaMixer", layer.mixer)
    rows, L = batch.tokens.shape
    tokens = batch.tokens.flatten()
    starts = L * torch.arange(rows, device=tokens.device)
    asked = (batch.query_positions + starts[:, None]).flatten()  # of rows * L tokens
    whole_vocab = model.vocab_size < len(tokens)
    source = E.T.contiguous() if whole_vocab else E.T[tokens]
    ids = batch.tokens if whole_vocab else torch.arange(len(tokens), device=tokens.device).view(rows, L)
    ids_asked = ids.flatten()[asked]

    u, norm_back = norm(layer.norm, source)
    W_x, W_z = mixer.in_proj.weight.split(spec.inner_dim) if spec.gate else (mixer.in_proj.weight, None)
    x_hat, conv_back = convolve(mixer, u @ W_x.T, ids)
    y_hat, read_back = (read_identity if mixer.dt_proj is None else read_selective)(
        mixer, x_hat, asked, batch.query_positions
    )
    u_q = u[ids_asked]
    y, out_back = gate_and_project(mixer, y_hat, u_q, W_z)
    if spec.residual:
        y += source[ids_asked]
    output, last_back = norm(model.norm_f, y)
    loss, grad, _ = query_loss_and_grads(output, E, batch.answers.flatten(), label_smoothing, grad_E=grad_of(E))

    grad = last_back(grad)
    grad_y_hat, grad_u_q = out_back(grad)
    grad_in = conv_back(read_back(grad_y_hat))
    grad_of(mixer.in_proj.weight)[: spec.inner_dim].addmm_(grad_in.T, u)
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


def norm(module: nn.Module, x: Float[Tensor, "rows D"]) -> tuple[Float[Tensor, "rows D"], Back]:
    """RMSNorm, or nothing."""
    if not isinstance(module, nn.RMSNorm):
        return x, lambda grad: grad
    weight = module.weight
    assert module.eps is not None
    scale = x.square().mean(dim=-1, keepdim=True).add_(module.eps).rsqrt_()
    unit = x * scale

    def back(grad: Tensor) -> Tensor:
        by_unit = grad * unit
        grad_of(weight).add_(by_unit.sum(dim=0))
        along = (by_unit @ weight)[:, None] / x.shape[-1]
        return (grad * weight).addcmul_(unit, along, value=-1).mul_(scale)

    return unit * weight, back


def convolve(
    mixer: "MambaMixer", table: Float[Tensor, "entries D_in"], ids: Int[Tensor, "batch L"]
) -> tuple[Float[Tensor, "batch L D_in"], Back]:
    """x̂ = SiLU(Conv1D(table[ids])); the way back ends at the table."""
    weight, bias = mixer.conv1d.weight, mixer.conv1d.bias
    conv = ConvInputs(ids, table, weight[:, 0], bias, mixer.spec.activation)

    def back(grad: Tensor) -> Tensor:
        grads = gathered_conv_backward(conv, grad)
        grad_of(weight)[:, 0].add_(grads.W_conv)
        if grads.bias is not None:
            grad_of(bias).add_(grads.bias)
        return grads.table

    return gathered_conv(conv), back


def read_selective(
    mixer: "MambaMixer",
    x_hat: Float[Tensor, "batch L D_in"],
    asked: Int[Tensor, " queries"],
    at: Int[Tensor, "batch Q"],
) -> tuple[Float[Tensor, "queries D_in"], Back]:
    """Δ, B and, where asked, C; then the scan.   Paper: Eq. 2-3 (`eq:original-ssm`)."""
    assert mixer.dt_proj is not None
    (rank, N, _), x = mixer.x_proj_rows, x_hat.flatten(0, 1)
    W_write, W_read = mixer.x_proj.weight.split([rank + N, N])
    W_delta, A = mixer.dt_proj.weight, mixer.transition()
    written, x_q = x @ W_write.T, x[asked]
    before_delta = written[:, :rank] if rank else x
    scan = ScanInputs(
        x_hat,
        (before_delta @ W_delta.T).view_as(x_hat),
        A,
        written[:, rank:].unflatten(0, x_hat.shape[:2]),
        (x_q @ W_read.T).view(*at.shape, N),
        mixer.D,
        mixer.dt_proj.bias,
        at,
        True,
    )
    y_hat, states = scan_forward(scan, keep=True)

    def back(grad: Tensor) -> Tensor:
        assert mixer.dt_proj is not None
        by = scan_backward(scan, states, grad.view_as(y_hat))
        grad_delta, grad_x = by.delta.flatten(0, 1), by.x_hat.flatten(0, 1)
        if mixer.A_log is not None:
            grad_of(mixer.A_log).addcmul_(by.A, A)
        assert by.bias is not None
        grad_of(mixer.dt_proj.bias).add_(by.bias)
        grad_of(W_delta).addmm_(grad_delta.T, before_delta)
        if by.skip is not None:
            grad_of(mixer.D).add_(by.skip)
        grad_written = by.B.flatten(0, 1)
        if rank:
            grad_written = torch.cat((grad_delta @ W_delta, grad_written), dim=1)
        else:
            grad_x.addmm_(grad_delta, W_delta)
        grad_C = by.C.flatten(0, 1)
        grad_of(mixer.x_proj.weight)[: rank + N].addmm_(grad_written.T, x)
        grad_of(mixer.x_proj.weight)[rank + N :].addmm_(grad_C.T, x_q)
        grad_x.addmm_(grad_written, W_write).index_add_(0, asked, grad_C @ W_read)
        return grad_x.view_as(x_hat)

    return y_hat.flatten(0, 1), back


def read_identity(
    mixer: "MambaMixer",
    x_hat: Float[Tensor, "batch L D_in"],
    asked: Int[Tensor, " queries"],
    at: Int[Tensor, "batch Q"],
) -> tuple[Float[Tensor, "queries D_in"], Back]:
    """Ā = I: attention from the queries to all tokens before them.   Paper: Eq. 4 (`eq:simple-ssm`)."""
    x, skip, W = x_hat.flatten(0, 1), mixer.D, mixer.x_proj.weight
    W_B, W_C = W.chunk(2)
    x_q = x[asked]
    B, C = (x @ W_B.T).view(*x_hat.shape[:2], -1), (x_q @ W_C.T).view(*at.shape, -1)
    seen = torch.arange(x_hat.shape[1], device=at.device) <= at[..., None]
    alpha = (C @ B.mT).mul_(seen)
    y_hat = (alpha @ x_hat).flatten(0, 1)
    if skip is not None:
        y_hat.addcmul_(skip, x_q)

    def back(grad: Tensor) -> Tensor:
        by_y = grad.view(*at.shape, -1)
        grad_alpha = (by_y @ x_hat.mT).mul_(seen)
        grad_B, grad_C = (grad_alpha.mT @ C).flatten(0, 1), (grad_alpha @ B).flatten(0, 1)
        grad_x, grad_q = (alpha.mT @ by_y).flatten(0, 1), grad_C @ W_C
        if skip is not None:
            grad_of(skip).add_((grad * x_q).sum(dim=0))
            grad_q.addcmul_(grad, skip)
        grad_of(W)[: len(W_B)].addmm_(grad_B.T, x)
        grad_of(W)[len(W_B) :].addmm_(grad_C.T, x_q)
        return grad_x.addmm_(grad_B, W_B).index_add_(0, asked, grad_q).view_as(x_hat)

    return y_hat, back


def gate_and_project(
    mixer: "MambaMixer", y_hat: Float[Tensor, "queries D_in"], u_q: Float[Tensor, "queries D"], W_z: Tensor | None
) -> tuple[Float[Tensor, "queries D"], Callable[[Tensor], tuple[Tensor, Tensor | None]]]:
    """W_out (ŷ ⊙ SiLU(W_z u)); the way back ends at ŷ and, where there is a gate, at u."""
    W_out, D_in = mixer.out_proj.weight, mixer.spec.inner_dim
    if W_z is None:

        def back_ungated(grad: Tensor) -> tuple[Tensor, None]:
            grad_of(W_out).addmm_(grad.T, y_hat)
            return grad @ W_out, None

        return y_hat @ W_out.T, back_ungated
    z = u_q @ W_z.T
    sigma = torch.sigmoid(z)
    gate = z * sigma
    gated = y_hat * gate

    def back(grad: Tensor) -> tuple[Tensor, Tensor]:
        grad_of(W_out).addmm_(grad.T, gated)
        grad_gated = grad @ W_out
        grad_z = (grad_gated * y_hat).mul_(sigma + gate * (1 - sigma))  # SiLU' = σ + z σ (1 - σ)
        grad_of(mixer.in_proj.weight)[D_in:].addmm_(grad_z.T, u_q)
        return grad_gated * gate, grad_z @ W_z

    return gated @ W_out.T, back


def grad_of(parameter: Tensor | None) -> Tensor:
    """Where its gradient is added up."""
    assert parameter is not None
    assert parameter.grad is not None
    return parameter.grad
