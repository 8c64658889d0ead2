"""The delta scan by our C kernel: forward, and backward with states computed anew, in O(batch L (N + P)) memory.

Forward keeps the state before every chunk of max(16, N/4) tokens, at most four times as many numbers as v has.
"""

import ctypes
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
    operator,
    threads_for,
)
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
    if not available():
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
    o, _states = torch.ops.recallscope.delta_scan(q, k, v, w, a, b, positions, keeps_states(q, k, v, w, a, b))
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


def _forward(*inputs: Any) -> tuple[Tensor, Tensor]:
    """o, and the state before every chunk but the first, for the way back (empty if it is not asked for)."""
    scan, keep = DeltaInputs(*inputs[:7]), inputs[7]
    arguments, _alive = _arguments(scan)
    o, states = _empty(*inputs)
    arguments.o, arguments.states = address(o), address(states) if keep else None
    if o.numel():
        call("delta_scan", arguments, o.dtype)
    return o, states


def _empty(*inputs: Any) -> tuple[Tensor, Tensor]:
    """Tensors of the right shape for what `_forward` returns."""
    scan, keep = DeltaInputs(*inputs[:7]), inputs[7]
    (batch, L, M, N), P = scan.k.shape, scan.v.shape[-1]
    chunks, wide = (L - 1) // kept_every(N) if L else 0, -(-P // PADDING) * PADDING
    return scan.q.new_empty(*scan.q.shape[:3], P), scan.q.new_empty((batch, M, chunks, N, wide) if keep else (0,))


def _backward(*inputs: Any) -> list[Tensor]:
    """Gradients by q, k, v and those of w, a, b that there are."""
    scan, states, o_grad = DeltaInputs(*inputs[:7]), inputs[7], inputs[8].contiguous()
    arguments, _alive = _arguments(scan)
    arguments.o_grad, arguments.states = address(o_grad), address(states)
    grads = _zeros(*inputs)
    for name, grad in zip((name for name, x in scan._asdict().items() if x is not None), grads, strict=False):
        setattr(arguments, f"{name}_grad", address(grad))
    if o_grad.numel():  # where nothing is asked, nothing is learned
        call("delta_scan", arguments, o_grad.dtype)
    return grads


def _zeros(*inputs: Any) -> list[Tensor]:
    return [torch.zeros_like(x, memory_format=torch.contiguous_format) for x in inputs[:6] if x is not None]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:7], output[1])


def _gradients(ctx: Any, o_grad: Tensor, _: Tensor | None) -> tuple[Tensor | None, ...]:
    *inputs, states = ctx.saved_tensors
    found = iter(torch.ops.recallscope.delta_scan_backward(*inputs, states, o_grad))
    return *(None if x is None else next(found) for x in inputs[:6]), None, None


_INPUTS = "Tensor q, Tensor k, Tensor v, Tensor? w, Tensor? a, Tensor? b, Tensor? positions"
operator(f"delta_scan({_INPUTS}, bool keep) -> (Tensor, Tensor)", _forward, _empty, _save, _gradients)
operator(f"delta_scan_backward({_INPUTS}, Tensor states, Tensor o_grad) -> Tensor[]", _backward, _zeros)
