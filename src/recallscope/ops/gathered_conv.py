"""Look up, convolve, activate, in one pass: x̂_t = act(bias + Σ_j w_j ⊙ table[id_{t-D_conv+1+j}]), by our C kernel.

In a one-layer model the projection before the convolution sees nothing but the token, so it is done once for
the vocabulary. What is left is this: rows of that table, a few taps, SiLU. The gathered rows are never stored.
"""

import ctypes
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding, silu

from recallscope.ops.compiled import address, call, threads_for
from recallscope.ops.conv import causal_conv

Activation = Literal["silu", "none"]

SIZES = ("batch", "length", "channels", "width", "rows", "silu", "threads", "table_stride")
POINTERS = (
    "ids", "table", "weight", "bias", "out", "out_grad", "table_grad", "weight_grad", "bias_grad",
)  # fmt: skip


class ConvArguments(ctypes.Structure):
    """`conv_arguments` of csrc/arguments.h."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in SIZES),
        *((name, ctypes.c_void_p) for name in POINTERS),
    ]


class ConvInputs(NamedTuple):
    """What the convolution reads. Ids are contiguous int64, the table's rows are dense."""

    ids: Int[Tensor, "batch L"]
    table: Float[Tensor, "rows D_in"]
    W_conv: Float[Tensor, "D_in D_conv"]
    bias: Float[Tensor, " D_in"] | None
    activation: Activation


class ConvGrads(NamedTuple):
    """The gradient of the loss by each input of the convolution."""

    table: Float[Tensor, "rows D_in"]
    W_conv: Float[Tensor, "D_in D_conv"]
    bias: Float[Tensor, " D_in"] | None


def gathered_conv_plain(conv: ConvInputs) -> Float[Tensor, "batch L D_in"]:
    """The three steps one after the other: the slow twin, and the one with an autograd graph.

    Paper: Eq. 1 (`eq:output_block`), x̂ = SiLU(Conv1D(Linear(x))).
    """
    x_hat = causal_conv(embedding(conv.ids, conv.table), conv.W_conv, conv.bias)
    return silu(x_hat) if conv.activation == "silu" else x_hat


def gathered_conv(conv: ConvInputs) -> Float[Tensor, "batch L D_in"]:
    """x̂ of every token.   Paper: Eq. 1 (`eq:output_block`)."""
    out = conv.table.new_empty(*conv.ids.shape, conv.table.shape[1])
    arguments, _alive = _arguments(conv)
    arguments.out = address(out)
    call("conv_forward", arguments, out.dtype)
    return out


def gathered_conv_backward(conv: ConvInputs, out_grad: Float[Tensor, "batch L D_in"]) -> ConvGrads:
    """From the gradient by x̂ to those by table, weight and bias."""
    out_grad = out_grad.contiguous()
    bias = None if conv.bias is None else torch.empty_like(conv.bias)
    grads = ConvGrads(conv.table.new_zeros(conv.table.shape), conv.W_conv.new_empty(conv.W_conv.shape), bias)
    arguments, _alive = _arguments(conv)
    arguments.out_grad = address(out_grad)
    arguments.table_grad, arguments.weight_grad = address(grads.table), address(grads.W_conv)
    arguments.bias_grad = address(grads.bias)
    call("conv_backward", arguments, out_grad.dtype)
    return grads


def _arguments(conv: ConvInputs) -> tuple[ConvArguments, list[Tensor]]:
    (batch, L), (rows, D_in) = conv.ids.shape, conv.table.shape
    ids, table, weight = conv.ids.contiguous(), conv.table.contiguous(), conv.W_conv.contiguous()
    alive = [ids, table, weight]
    arguments = ConvArguments(
        batch=batch, length=L, channels=D_in, width=weight.shape[1], rows=rows, silu=conv.activation == "silu",
        threads=threads_for(batch * L * D_in), table_stride=D_in,
        ids=address(ids), table=address(table), weight=address(weight),
    )  # fmt: skip
    if conv.bias is not None:
        alive.append(conv.bias.contiguous())
        arguments.bias = address(alive[-1])
    return arguments, alive
