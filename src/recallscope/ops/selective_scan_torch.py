"""The selective scan in plain torch, fast on a CPU: forward and backward written out, time leading.

Autograd through the loop would keep every Ā_t and h_t of the whole batch, and touch each several times. Here
only the inputs are kept, states are computed anew in the backward pass, and the batch is taken a few rows at
a time, in buffers that stay in the cache. Writing v' for the gradient of the loss by v, and g_t for h'_t, the
way back is the same recurrence run from the end, g_t = ŷ'_t C_tᵀ + Ā_{t+1} ⊙ g_{t+1}, and then

    x̂'_t = Δ_t (g_t B_t),   Δ'_t = x̂_t (g_t B_t) + Σ_n A ⊙ g_t ⊙ Ā_t ⊙ h_{t-1},   B'_t = g_tᵀ (Δ_t x̂_t),
    C'_t = h_tᵀ ŷ'_t,   A' = Σ_t Δ_t g_t ⊙ Ā_t ⊙ h_{t-1}.
"""

from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

# per buffer; larger ones leave the cache, and above 32 MB the system takes them back each time
BUFFER_BYTES = 4 * 2**20


def selective_scan_torch(
    x_hat: Float[Tensor, "*batch L D_in"],
    delta: Float[Tensor, "*batch L D_in"],
    A: Float[Tensor, "D_in N"],
    B: Float[Tensor, "*batch L N"],
    C: Float[Tensor, "*batch L N"],
    *,
    rows: int | None = None,
) -> Float[Tensor, "*batch L D_in"]:
    """The selective scan, `rows` sequences at a time (as many as fit the cache unless given).

    Paper: Eq. 2 (`eq:TimeVariantMatrices1`) and Eq. 3 (`eq:original-ssm`).   Holds for: first derivatives.
    """
    time_first = [v.reshape(-1, *v.shape[-2:]).transpose(0, 1) for v in (x_hat, delta, B, C)]
    x, dt, B_t, C_t = time_first
    if rows is None:
        rows = _rows_that_fit(x, A.shape[-1])
    y_hat = _TimeMajorScan.apply(x, dt, A, B_t, C_t, rows)
    return y_hat.transpose(0, 1).reshape(x_hat.shape)


def _rows_that_fit(x: Tensor, N: int) -> int:
    L, batch, D_in = x.shape
    if x.is_cuda:
        return batch
    return max(1, min(batch, BUFFER_BYTES // (L * D_in * N * x.element_size())))


class _TimeMajorScan(Function):
    """Axes are time, row, channel, state entry throughout."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Float[Tensor, "L batch D_in"],
        delta: Float[Tensor, "L batch D_in"],
        A: Float[Tensor, "D_in N"],
        B: Float[Tensor, "L batch N"],
        C: Float[Tensor, "L batch N"],
        rows: int,
    ) -> Float[Tensor, "L batch D_in"]:
        ctx.save_for_backward(x, delta, A, B, C)
        ctx.rows = rows
        y_hat = x.new_empty(x.shape)
        A_bars, hs = _buffers(x, A, rows, count=2)
        for now in _row_slices(x.shape[1], rows):
            A_bar, h = _fit(A_bars, now), _fit(hs, now)
            _run_forward(x[:, now], delta[:, now], A, B[:, now], A_bar, h)
            y_hat[:, now] = (h @ C[:, now, :, None])[..., 0]
        return y_hat

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (y_grad,) = grads
        x, delta, A, B, C = ctx.saved_tensors
        x_grad, delta_grad, B_grad, C_grad = (v.new_empty(v.shape) for v in (x, delta, B, C))
        A_grad = torch.zeros_like(A)
        A_bars, hs, gs = _buffers(x, A, ctx.rows, count=3)
        for now in _row_slices(x.shape[1], ctx.rows):
            A_bar, h, g = _fit(A_bars, now), _fit(hs, now), _fit(gs, now)
            x_r, delta_r, B_r, C_r, y_r = (v[:, now] for v in (x, delta, B, C, y_grad))
            _run_forward(x_r, delta_r, A, B_r, A_bar, h)
            C_grad[:, now] = (y_r[..., None, :] @ h)[..., 0, :]
            _run_backward(y_r, C_r, A_bar, g)
            B_grad[:, now] = ((delta_r * x_r)[..., None, :] @ g)[..., 0, :]
            g_B = (g @ B_r[..., None])[..., 0]
            x_grad[:, now] = delta_r * g_B
            delta_grad[:, now] = x_r * g_B
            # what Ā passes on to Δ and A; nothing precedes the first token, and the buffers are done with
            g_A_h = A_bar[1:].mul_(g[1:]).mul_(h[:-1])
            delta_grad[1:, now] += torch.mul(g_A_h, A, out=h[1:]).sum(dim=-1)
            A_grad += g_A_h.mul_(delta_r[1:, ..., None]).sum(dim=(0, 1))
        return x_grad, delta_grad, A_grad, B_grad, C_grad, None


def _run_forward(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, A_bar: Tensor, h: Tensor) -> None:
    """Fill `A_bar` with exp(Δ A) and `h` with the state after every token."""
    torch.mul(delta[..., None], A, out=A_bar).exp_()
    torch.mul((delta * x)[..., None], B[..., None, :], out=h)
    for t in range(1, len(h)):
        h[t].addcmul_(A_bar[t], h[t - 1])


def _run_backward(y_grad: Tensor, C: Tensor, A_bar: Tensor, g: Tensor) -> None:
    """Fill `g` with the gradient of the loss by the state after every token."""
    torch.mul(y_grad[..., None], C[..., None, :], out=g)
    for t in range(len(g) - 2, -1, -1):
        g[t].addcmul_(A_bar[t + 1], g[t + 1])


def _row_slices(batch: int, rows: int) -> Iterator[slice]:
    return (slice(start, min(start + rows, batch)) for start in range(0, batch, rows))


def _buffers(x: Tensor, A: Tensor, rows: int, count: int) -> list[Tensor]:
    return [x.new_empty(x.shape[0], min(rows, x.shape[1]), *A.shape) for _ in range(count)]


def _fit(buffer: Tensor, now: slice) -> Tensor:
    return buffer[:, : now.stop - now.start]
