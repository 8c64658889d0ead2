"""Operators: what a linear head does to tokens, whatever its rotation; and tokens as the operators see them.

Weights can be rotated without changing the function, so weights prove nothing. The operators act on tokens on both
sides, and rotations inside cancel. One freedom is left: G_vv may be multiplied by c and G_kq by 1/c, sign included.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn.functional import one_hot, pad


def key_tokens(vocab_size: int) -> slice:
    """Tokens 1 .. V/2 - 1. Token 0 is neither key nor value: it may fill gaps, but no fact begins with it.

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


@dataclass(frozen=True)
class Operators:
    """The net operators of one head, on windows of W = D_conv symbols out of T; T = V for tokens.

    Blocks of columns belong to the tokens of a window, oldest first: (x_{t-1} | x_t) for W = 2.

    Paper: Eq. 9 (`eq:proj-opertators`).   Holds for: any D_conv; the print has 2.
    """

    Pi_v_in: Float[Tensor, "P WT"]
    """what a window brings into the state: Ê_in itself, where there is one head"""
    Pi_v_out: Float[Tensor, "T P"]
    """from the state to the logits, Eᵀ P_out"""
    Pi_k_in: Float[Tensor, "N WT"]
    """where it is written, S_B Ê_in"""
    Pi_q_in: Float[Tensor, "N WT"]
    """where it is read, S_C Ê_in"""
    delay: int = 0
    """tokens between a fact and its writing; a window of two leaves no choice, wider ones do"""

    @property
    def size(self) -> int:
        """T, symbols of the space the operators act on."""
        return self.Pi_v_out.shape[0]

    @property
    def conv_width(self) -> int:
        """W, tokens in a window."""
        return self.Pi_v_in.shape[1] // self.size

    @property
    def value_operator(self) -> Float[Tensor, "T WT"]:
        """G_vv = Π_v,out Π_v,in.   Paper: Eq. 9 (`eq:proj-opertators`)."""
        return self.Pi_v_out @ self.Pi_v_in

    @property
    def match_operator(self) -> Float[Tensor, "WT WT"]:
        """G_kq = Π_k,inᵀ Π_q,in.   Paper: Eq. 9 (`eq:proj-opertators`)."""
        return self.Pi_k_in.T @ self.Pi_q_in

    @property
    def value_block(self) -> Float[Tensor, "T T"]:
        """The block of G_vv that the circuit uses: (logit, value).   Paper: Eq. 11 (`eq:Gvv-Gkq`)."""
        return self.Pi_v_out @ self.encoded_values

    @property
    def match_block(self) -> Float[Tensor, "T T"]:
        """The block of G_kq that the circuit uses: (key, query).   Paper: Eq. 11 (`eq:Gvv-Gkq`)."""
        return self.hashed_keys.T @ self.hashed_queries

    @property
    def encoded_values(self) -> Float[Tensor, "P T"]:
        """v' of every token: what it brings into the state as the value of a fact, the current token of its window.

        Paper: Eq. 13 (`eq:h-prime`).
        """
        return blocks(self.Pi_v_in, self.size)[-1 - self.delay]

    @property
    def hashed_keys(self) -> Float[Tensor, "N T"]:
        """k' of every token: where it sends what follows it; 0 where no window holds a previous token.

        Paper: Eq. 13 (`eq:h-prime`).
        """
        taps = blocks(self.Pi_k_in, self.size)
        return taps[-2 - self.delay] if len(taps) > 1 else torch.zeros_like(taps[-1])

    @property
    def hashed_queries(self) -> Float[Tensor, "N T"]:
        """q' of every token: where it looks.   Paper: Eq. 13 (`eq:h-prime`)."""
        return blocks(self.Pi_q_in, self.size)[-1]

    def restricted(self, tokens: Int[Tensor, " some"]) -> "Operators":
        """The same operators on some of the tokens, in the given order: for tables of a large vocabulary."""
        ins = (self.Pi_v_in, self.Pi_k_in, self.Pi_q_in)
        v_in, k_in, q_in = (torch.cat(list(blocks(part, self.size)[:, :, tokens]), dim=1) for part in ins)
        return Operators(v_in, self.Pi_v_out[tokens], k_in, q_in, self.delay)


def input_embedding(
    code: Float[Tensor, "D T"], P_in: Float[Tensor, "D_in D"], W_conv: Float[Tensor, "D_in W"]
) -> Float[Tensor, "D_in WT"]:
    """Ê_in = (diag(W⁰) P_in E | diag(W¹) P_in E | ...): x̂_t = Ê_in ξ_t.   Paper: Eq. 9 (`eq:proj-opertators`)."""
    embedded = P_in @ code
    return torch.cat([tap[:, None] * embedded for tap in W_conv.T], dim=1)
