"""The delta scan by our C kernel: forward, and backward with states computed anew, in O(batch L (N + P)) memory.

Forward keeps the state before every chunk of max(16, N/4) tokens, at most four times as many numbers as v has.
"""

import ctypes
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from recallscope.ops.compiled import address, call, fields, fits, hand_over, library, threads_for
from recallscope.ops.selective_scan_compiled import kept_every

PADDING = 16  # numbers that the kernel pads a row of a kept state to


class DeltaArguments(ctypes.Structure):
    """`delta_arguments` of csrc/arguments.h."""

    _fields_ = fields(
        "batch length asked heads key value decays chunk threads",
        "positions q k v w a b o states o_grad q_grad k_grad v_grad w_grad a_grad b_grad",
    )


class DeltaInputs(NamedTuple):
    """What a delta scan reads. With `positions`, q has a row per position instead of one per token."""

    q: Float[Tensor, "batch Q M N"]
    k: Float[Tensor, "batch L M N"]
    v: Float[Tensor, "batch L M P"]
    w: Float[Tensor, "batch L M #N"] | None
    a: Float[Tensor, "batch L M N"] | None
    b: Float[Tensor, "batch L M N"] | None
    positions: Int[Tensor, "batch Q"] | None


def delta_scan_compiled(
    q: Float[Tensor, "batch Q M N"],
    k: Float[Tensor, "batch L M N"],
    v: Float[Tensor, "batch L M P"],
    w: Float[Tensor, "batch L M #N"] | None = None,
    a: Float[Tensor, "batch L M N"] | None = None,
    b: Float[Tensor, "batch L M N"] | None = None,
    *,
    positions: Int[Tensor, "batch Q"] | None = None,
) -> Float[Tensor, "batch Q M P"]:
    """o after every token, or at the positions.   Holds for: first derivatives, float32 and float64, CPU."""
    if library() is None:
        raise RuntimeError(
            "the compiled scan cannot be built here (the log says why). Use form='torch', or install gcc or clang."
        )
    if not fits(q, k, v, w, a, b):
        raise TypeError(
            f"q is {q.dtype} on {q.device}: the compiled scan takes float32 or float64 on the CPU, the same for all. "
            f"Use form='torch'."
        )
    if positions is None and q.shape[1] != k.shape[1]:
        raise ValueError(f"{q.shape[1]} queries for {k.shape[1]} tokens: say at which positions they are asked.")
    o: Tensor = _DeltaScan.apply(*DeltaInputs(q, k, v, w, a, b, positions))
    return o


def _arguments(scan: DeltaInputs) -> tuple[DeltaArguments, list[Tensor]]:
    """Sizes and addresses, and the tensors that must outlive the call."""
    (batch, L, M, N), P, Q = scan.k.shape, scan.v.shape[-1], scan.q.shape[1]
    arguments = DeltaArguments(
        batch,
        L,
        Q,
        M,
        N,
        P,
        0 if scan.w is None else scan.w.shape[-1],
        kept_every(N),
        threads_for(batch * L * M * N * P),
    )
    return arguments, hand_over(arguments, **scan._asdict())


class _DeltaScan(Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        scan = DeltaInputs(*inputs)
        (batch, L, M, N), P = scan.k.shape, scan.v.shape[-1]
        o = scan.q.new_empty(*scan.q.shape[:3], P)
        arguments, _alive = _arguments(scan)
        chunks, wide = max(L - 1, 0) // arguments.chunk, -(-P // PADDING) * PADDING
        states = o.new_empty(batch, M, chunks, N, wide) if any(ctx.needs_input_grad) else None
        arguments.o, arguments.states = address(o), address(states)
        if o.numel():
            call("delta_scan", arguments, o.dtype)
        ctx.save_for_backward(*inputs, states)
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, states = ctx.saved_tensors
        scan, o_grad = DeltaInputs(*inputs), grads[0].contiguous()
        back = [None if x is None else torch.zeros_like(x, memory_format=torch.contiguous_format) for x in scan[:6]]
        arguments, _alive = _arguments(scan)
        arguments.o_grad, arguments.states = address(o_grad), address(states)
        for name, grad in zip(DeltaInputs._fields, back, strict=False):
            setattr(arguments, f"{name}_grad", address(grad))
        if o_grad.numel():  # where nothing is asked, nothing is learned
            call("delta_scan", arguments, o_grad.dtype)
        return *back, None
