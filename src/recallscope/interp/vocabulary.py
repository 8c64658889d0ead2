"""Which tokens are keys, which are values, and sequences as windows of one-hot tokens."""

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import one_hot, pad


def key_tokens(vocab_size: int) -> slice:
    """Tokens 1 .. V/2 - 1. Token 0 is neither: it may fill gaps, but no fact begins with it.

    Paper: Sec. 2 (`par:mqar-definition`).
    """
    return slice(1, vocab_size // 2)


def value_tokens(vocab_size: int) -> slice:
    """Tokens V/2 .. V - 1.   Paper: Sec. 2 (`par:mqar-definition`)."""
    return slice(vocab_size // 2, vocab_size)


def one_hot_tokens(
    tokens: Int[Tensor, "*batch L"], vocab_size: int, *, dtype: torch.dtype
) -> Float[Tensor, "*batch L V"]:
    """x_t as the paper writes it, a one-hot vector per token.   Paper: Tab. 1 (`tab:mqar_notation`)."""
    return one_hot(tokens, vocab_size).to(dtype)


def windows(x: Float[Tensor, "*batch L T"], conv_width: int) -> Float[Tensor, "*batch L WT"]:
    """ξ_t, the last D_conv tokens stacked, oldest first: (x_{t-1}; x_t) for width 2. Before the first token: 0.

    Paper: Eq. 10, ξ_t for D_conv = 2.   Holds for: any D_conv.
    """
    L = x.shape[-2]
    padded = pad(x, (0, 0, conv_width - 1, 0))
    return torch.cat([padded[..., tap : tap + L, :] for tap in range(conv_width)], dim=-1)


def blocks(matrix: Shaped[Tensor, "rows WT"], size: int) -> Shaped[Tensor, "W rows T"]:
    """The columns of an operator on windows, one block per token of the window, oldest first."""
    return torch.stack(matrix.split(size, dim=1))
