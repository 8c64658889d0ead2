"""The selective scan by our C kernel: forward, and backward with states computed anew, in O(batch L D_in) memory.

Forward keeps the state before every chunk of max(16, N/4) tokens, at most four times as many numbers as x̂ has;
backward recomputes one chunk at a time. Two things are fused because they cost nothing there: Δ = softplus(δ + bias),
and reading at a few positions only, which is all that training asks for.
"""

import ctypes
import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.ops.compiled import (
    address,
    available,
    call,
    fields,
    fits,
    hand_over,
    keeps_states,
    library,
    operator,
    threads_for,
)  # fmt: skip

SHORTEST_CHUNK = 16


class ScanArguments(ctypes.Structure):
    """`scan_arguments` of csrc/arguments.h."""

    _fields_ = fields(
        "batch length channels state asked chunk softplus threads x_stride delta_stride B_stride C_stride "
        "x_grad_stride delta_grad_stride B_grad_stride C_grad_stride",
        "x delta A B C skip bias positions y states y_grad x_grad delta_grad A_grad B_grad C_grad skip_grad bias_grad",
    )


class ScanInputs(NamedTuple):
    """What a scan reads. With `positions`, C and ŷ have a row per position instead of one per token; with
    `softplus`, Δ = softplus(delta + bias)."""

    x_hat: Float[Tensor, "batch L D_in"]
    delta: Float[Tensor, "batch L D_in"]
    A: Float[Tensor, "D_in N"]
    B: Float[Tensor, "batch L N"]
    C: Float[Tensor, "batch Q N"]
    skip: Float[Tensor, " D_in"] | None = None
    bias: Float[Tensor, " D_in"] | None = None
    positions: Int[Tensor, "batch Q"] | None = None
    softplus: bool = False


class ScanGrads(NamedTuple):
    """The gradient of the loss by each input of a scan."""

    x_hat: Float[Tensor, "batch L D_in"]
    delta: Float[Tensor, "batch L D_in"]
    A: Float[Tensor, "D_in N"]
    B: Float[Tensor, "batch L N"]
    C: Float[Tensor, "batch Q N"]
    skip: Float[Tensor, " D_in"] | None
    bias: Float[Tensor, " D_in"] | None


def selective_scan_compiled(
    x_hat: Float[Tensor, "*batch L D_in"],
    delta: Float[Tensor, "*batch L D_in"],
    A: Float[Tensor, "D_in N"],
    B: Float[Tensor, "*batch L N"],
    C: Float[Tensor, "*batch Q N"],
    skip: Float[Tensor, " D_in"] | None = None,
    *,
    delta_bias: Float[Tensor, " D_in"] | None = None,
    positions: Int[Tensor, "*batch Q"] | None = None,
) -> Float[Tensor, "*batch Q D_in"]:
    """ŷ after every token, or at the positions; `delta_bias` asks for Δ = softplus(delta + delta_bias).

    Paper: Eq. 2 (`eq:TimeVariantMatrices1`) and Eq. 3 (`eq:original-ssm`).   Holds for: first derivatives,
        float32 and float64, CPU.
    """
    if not available():
        raise RuntimeError(
            "the compiled scan cannot be built here (the log says why). Use form='torch', or install gcc or clang."
        )
    if not fits(x_hat, delta, A, B, C, skip, delta_bias):
        raise TypeError(
            f"x_hat is {x_hat.dtype} on {x_hat.device}: the compiled scan takes float32 or float64 on the CPU, the "
            f"same for all. Use form='torch'."
        )
    batch = math.prod(x_hat.shape[:-2])
    x, dt, B_t, C_t = (v.reshape(batch, *v.shape[-2:]) for v in (x_hat, delta, B, C))
    at = None if positions is None else positions.reshape(batch, positions.shape[-1])
    softplus, keep = delta_bias is not None, keeps_states(x, dt, A, B_t, C_t, skip, delta_bias)
    y, _states = torch.ops.recallscope.selective_scan(x, dt, A, B_t, C_t, skip, delta_bias, at, softplus, keep)
    return y.reshape(*x_hat.shape[:-2], *y.shape[-2:])


def scan_forward(scan: ScanInputs, *, keep: bool) -> tuple[Float[Tensor, "batch Q D_in"], Float[Tensor, "..."]]:
    """ŷ and, if it is to be kept for the way back, the state before every chunk but the first (else nothing)."""
    y, states = _empty(scan, keep=keep)
    arguments, _alive = _arguments(scan)
    arguments.y, arguments.states = address(y), address(states) if keep else None
    if y.numel():
        call("scan_forward", arguments, y.dtype)
    return y, states


def _empty(scan: ScanInputs, *, keep: bool) -> tuple[Tensor, Tensor]:
    """Tensors of the right shape for what `scan_forward` returns."""
    (batch, L, D_in), N, Q = scan.x_hat.shape, scan.A.shape[1], scan.C.shape[1]
    chunks = (L - 1) // kept_every(N) if L else 0
    return scan.x_hat.new_empty(batch, Q, D_in), scan.x_hat.new_empty(
        (batch, chunks, N, _padded(D_in)) if keep else (0,)
    )


def scan_backward(
    scan: ScanInputs, states: Float[Tensor, "batch chunks N wide"], y_grad: Float[Tensor, "batch Q D_in"]
) -> ScanGrads:
    """From the gradient by ŷ to those by all inputs."""
    arguments, _alive = _arguments(scan)
    y_grad = y_grad.contiguous()
    like = [v if v is None else v.new_empty(v.shape) if y_grad.numel() else v.new_zeros(v.shape) for v in scan[:7]]
    x_hat, delta, A, B, C, skip, bias = like
    assert x_hat is not None and delta is not None and A is not None and B is not None and C is not None  # noqa: PT018
    grads = ScanGrads(x_hat, delta, A, B, C, skip, bias)
    arguments.states, arguments.y_grad = address(states), address(y_grad)
    for name, grad in zip(("x", "delta", "A", "B", "C", "skip", "bias"), grads, strict=True):
        setattr(arguments, f"{name}_grad", address(grad))
    arguments.x_grad_stride = arguments.delta_grad_stride = scan.x_hat.shape[2]
    arguments.B_grad_stride = arguments.C_grad_stride = scan.A.shape[1]
    if y_grad.numel():  # where nothing is asked, nothing is learned
        call("scan_backward", arguments, y_grad.dtype)
    return grads


def _arguments(scan: ScanInputs) -> tuple[ScanArguments, list[Tensor]]:
    """Sizes, strides and addresses; and the tensors that must live as long as they are used."""
    (batch, L, D_in), N, Q = scan.x_hat.shape, scan.A.shape[1], scan.C.shape[1]
    arguments = ScanArguments(
        batch=batch, length=L, channels=D_in, state=N, asked=Q, chunk=kept_every(N), softplus=scan.softplus,
        threads=threads_for(batch * L * D_in * N),
    )  # fmt: skip
    alive = []
    for name, tensor in (("x", scan.x_hat), ("delta", scan.delta), ("B", scan.B), ("C", scan.C)):
        even, stride = _even(tensor)
        setattr(arguments, name, address(even))
        setattr(arguments, f"{name}_stride", stride)
        alive.append(even)
    alive += hand_over(arguments, A=scan.A, skip=scan.skip, bias=scan.bias, positions=scan.positions)
    return arguments, alive


def _even(tensor: Float[Tensor, "batch T width"]) -> tuple[Float[Tensor, "batch T width"], int]:
    """The tensor and its stride from token to token; a copy, if tokens are not evenly spaced in memory."""
    batch, T, width = tensor.shape
    stride = tensor.stride(1) if T > 1 else tensor.stride(0)
    dense = width <= 1 or tensor.stride(2) == 1
    if dense and (T <= 1 or batch <= 1 or tensor.stride(0) == T * stride):
        return tensor, stride
    return tensor.contiguous(), width


def kept_every(N: int) -> int:
    """Tokens between two kept states: short, so that those of a chunk fit the cache, but kept memory stays near x̂'s."""
    return max(SHORTEST_CHUNK, N // 4)


def _padded(D_in: int) -> int:
    kernels = library()
    assert kernels is not None
    whole = kernels.padding_size()
    return -(-D_in // whole) * whole


def _forward(*inputs: Any) -> tuple[Tensor, Tensor]:
    return scan_forward(ScanInputs(*inputs[:9]), keep=inputs[9])


def _fake(*inputs: Any) -> tuple[Tensor, Tensor]:
    return _empty(ScanInputs(*inputs[:9]), keep=inputs[9])


def _backward(*inputs: Any) -> list[Tensor]:
    """Gradients by x̂, Δ, A, B, C and those of skip and bias that there are."""
    *scan, states, y_grad = inputs
    return [grad for grad in scan_backward(ScanInputs(*scan), states, y_grad) if grad is not None]


def _fake_backward(*inputs: Any) -> list[Tensor]:
    return [torch.empty_like(x, memory_format=torch.contiguous_format) for x in inputs[:7] if x is not None]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:8], output[1])
    ctx.softplus = inputs[8]


def _gradients(ctx: Any, y_grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    *inputs, states = ctx.saved_tensors
    found = iter(torch.ops.recallscope.selective_scan_backward(*inputs, ctx.softplus, states, y_grad))
    return *(None if x is None else next(found) for x in inputs[:7]), None, None, None


_INPUTS = "Tensor x, Tensor delta, Tensor A, Tensor B, Tensor C, Tensor? skip, Tensor? bias, Tensor? at, bool softplus"
operator(f"selective_scan({_INPUTS}, bool keep) -> (Tensor, Tensor)", _forward, _fake, _save, _gradients)
operator(f"selective_scan_backward({_INPUTS}, Tensor states, Tensor y_grad) -> Tensor[]", _backward, _fake_backward)
