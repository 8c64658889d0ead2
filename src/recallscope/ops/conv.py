"""Causal depthwise convolution: every channel mixes its own last D_conv tokens, and never looks ahead.

The last tap acts on the current token: W_conv = (W⁰ | W¹), x̂_t = W⁰ ⊙ x_{t-1} + W¹ ⊙ x_t. Before the first
token there is nothing, so x_{-1} = 0.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad


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
