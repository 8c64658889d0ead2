"""Causal depthwise convolution: every channel mixes its own last D_conv tokens, and never looks ahead.

The last tap acts on the current token: W_conv = (W⁰ | W¹), x̂_t = W⁰ ⊙ x_{t-1} + W¹ ⊙ x_t. Before the first
token there is nothing, so x_{-1} = 0.

`gathered_conv` is look-up, convolution and activation in one pass, by our C kernel:
x̂_t = act(bias + Σ_j w_j ⊙ table[id_{t-D_conv+1+j}]). In a one-layer model the projection before the convolution sees
nothing but the token, so it is done once for the vocabulary. The gathered rows are never stored.
"""

import ctypes
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import embedding, pad, silu

from recallscope.ops.compiled import address, call, fields, hand_over, threads_for

Activation = Literal["silu", "none"]


def causal_conv_loop(
    x_in: Float[Tensor, "*batch L D_in"],
    W_conv: Float[Tensor, "D_in D_conv"],
    bias: Float[Tensor, " D_in"] | None = None,
) -> Float[Tensor, "*batch L D_in"]:
    """The convolution token by token, tap by tap: the plain twin of `causal_conv`.

    Paper: Alg. 1 (`alg:mamba`), kernel of Tab. 3 (`tab:mamba_dims`).
    """
    L, D_conv = x_in.shape[-2], W_conv.shape[-1]
    x_hat = []
    for t in range(L):
        x_hat_t = torch.zeros_like(x_in[..., t, :]) if bias is None else bias.expand_as(x_in[..., t, :])
        for tap in range(D_conv):
            tau = t - (D_conv - 1) + tap
            if tau >= 0:
                x_hat_t = x_hat_t + W_conv[:, tap] * x_in[..., tau, :]
        x_hat.append(x_hat_t)
    return torch.stack(x_hat, dim=-2)


def causal_conv(
    x_in: Float[Tensor, "*batch L D_in"],
    W_conv: Float[Tensor, "D_in D_conv"],
    bias: Float[Tensor, " D_in"] | None = None,
) -> Float[Tensor, "*batch L D_in"]:
    """The convolution as a sum of D_conv shifted products: as fast as conv1d at 2 to 4 taps, faster at 1.

    Paper: Alg. 1 (`alg:mamba`), kernel of Tab. 3 (`tab:mamba_dims`).
    """
    L, D_conv = x_in.shape[-2], W_conv.shape[-1]
    padded = pad(x_in, (0, 0, D_conv - 1, 0))
    x_hat = x_in * W_conv[:, -1]
    for tap in range(D_conv - 1):
        x_hat = x_hat + padded[..., tap : tap + L, :] * W_conv[:, tap]
    return x_hat if bias is None else x_hat + bias


def add_taps(by_tap: Float[Tensor, "batch L D_conv R"]) -> Float[Tensor, "batch L R"]:
    """A convolution whose taps are matrices, from what every token adds tap by tap, oldest first."""
    L, D_conv = by_tap.shape[1:3]
    summed = by_tap[:, :, -1]
    for ago in range(1, min(D_conv, L)):
        summed = summed + pad(by_tap[:, : L - ago, -1 - ago], (0, 0, ago, 0))
    return summed


class ConvArguments(ctypes.Structure):
    """`conv_arguments` of csrc/arguments.h."""

    _fields_ = fields(
        "batch length channels width rows silu threads table_stride",
        "ids table weight bias out out_grad table_grad weight_grad bias_grad",
    )


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
    arguments = ConvArguments(
        batch=batch, length=L, channels=D_in, width=conv.W_conv.shape[1], rows=rows, silu=conv.activation == "silu",
        threads=threads_for(batch * L * D_in), table_stride=D_in,
    )  # fmt: skip
    return arguments, hand_over(arguments, ids=conv.ids, table=conv.table, weight=conv.W_conv, bias=conv.bias)
