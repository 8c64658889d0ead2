"""What a model does to tokens, whatever its rotation: Ê_in, the projections Π, and their products G_vv and G_kq.

Weights can be rotated without changing the function, so weights prove nothing. These operators act on tokens on both
sides, and rotations inside cancel. Only one freedom is left: G_vv may be multiplied by c and G_kq by 1/c, sign
included.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.layered import LayeredModel, RecallLayer
from recallscope.architectures.linear_model import LinearLayer
from recallscope.architectures.multihead_model import MultiHeadLayer
from recallscope.interp.vocabulary import blocks, key_tokens, one_hot_tokens, value_tokens, windows
from recallscope.ops import contract, deal, split


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


@torch.no_grad()
def layer_operators(layer: RecallLayer, code: Float[Tensor, "D T"]) -> tuple[Operators, ...]:
    """One `Operators` per head. `code` names the symbols: E for tokens, the identity for the residual stream itself.

    Paper: Eq. 9 (`eq:proj-opertators`); heads as in Alg. 4 (`alg:mamba-2`).
    Holds for: linear layers. In full Mamba gate, SiLU and Δ depend on the input, and no fixed operator exists.
    """
    match layer:
        case LinearLayer():
            E_hat_in = input_embedding(code, layer.P_in, layer.W_conv)
            return (Operators(E_hat_in, code.T @ layer.P_out, layer.S_B @ E_hat_in, layer.S_C @ E_hat_in),)
        case MultiHeadLayer():
            M = layer.num_heads
            E_hat_x, E_hat_B, E_hat_C = (
                input_embedding(code, getattr(layer, f"P_in_{name}"), getattr(layer, f"W_conv_{name}"))
                for name in ("x", "B", "C")
            )
            if layer.shares_values:
                values = contract(split(E_hat_x.T, M), layer.W_x)
            else:
                values = deal(E_hat_x.T, layer.W_x)
            Pi_v_in = values.permute(1, 2, 0)  # heads (1 if shared), P, windows
            Pi_v_out = einsum(code, layer.P_out, layer.W_y, "D T, D D_in, D_in P M -> M T P")
            Pi_k_in, Pi_q_in = layer.S_B @ E_hat_B, layer.S_C @ E_hat_C
            heads = (part.expand(M, -1, -1) for part in (Pi_v_in, Pi_v_out, Pi_k_in, Pi_q_in))
            return tuple(Operators(v_in, v_out, k, q) for v_in, v_out, k, q in zip(*heads, strict=True))
        case _:
            raise ValueError(
                f"{type(layer).__name__} has no invariant operators: Eq. 9 multiplies weights, and full Mamba has "
                f"SiLU, gate and Δ between them. Use a linear or multi-head model, or recallscope.interp.full_probe."
            )


def token_operators(model: LayeredModel, *, layer: int = 0) -> tuple[Operators, ...]:
    """The operators of one layer on tokens, one per head.

    In layers above the first they describe the direct path: the layer reads the part of the residual stream that
    still is
    the embedding, and what it writes goes to the head as it is.

    Paper: Eq. 9 (`eq:proj-opertators`); layers as in Thm G.1 (`app-thm:multi-layer-recall`).
    """
    if not -len(model.layers) <= layer < len(model.layers):
        raise ValueError(f"layer={layer}, and the model has {len(model.layers)}. Use 0 <= layer < {len(model.layers)}.")
    return with_best_delay(layer_operators(model.layers[layer], model.E.detach()))


def mean_diagonals(ops: Operators) -> tuple[float, float]:
    """Mean diagonal of G_vv's block over values, and of G_kq's block over keys: both 1 in the circuit.

    Paper: Eq. 11 (`eq:Gvv-Gkq`).
    """
    v, k = value_tokens(ops.size), key_tokens(ops.size)
    of_values = einsum(ops.Pi_v_out[v], ops.encoded_values[:, v], "T P, P T -> T")
    of_keys = einsum(ops.hashed_keys[:, k], ops.hashed_queries[:, k], "N T, N T -> T")
    return float(of_values.mean()), float(of_keys.mean())


def with_best_delay(parts: Sequence[Operators]) -> tuple[Operators, ...]:
    """The same operators, read at the delay at which a fact raises its value most, all heads together.

    Departs: Eq. 11 (`eq:Gvv-Gkq`) is for windows of two. Wider ones hold a fact for several tokens, and trained models
        use that: with D_conv = 4 they may write it one token late, and the blocks are found one place earlier.
    """

    def raised(delay: int) -> float:
        diagonals = [mean_diagonals(replace(part, delay=delay)) for part in parts]
        return abs(sum(value * match for value, match in diagonals))

    best = max(range(max(1, parts[0].conv_width - 1)), key=raised)
    return tuple(replace(part, delay=best) for part in parts)


def read_through(parts: Sequence[Operators], x: Float[Tensor, "*batch L T"]) -> Float[Tensor, "*batch L T"]:
    """Σ_τ G_vv ξ_τ ξ_τᵀ G_kq ξ_t, summed over heads.   Paper: Eq. 10."""
    y = torch.zeros_like(x)
    for head in parts:
        xi = windows(x, head.conv_width)
        alpha = einsum(xi, head.match_operator, xi, "... tau a, a b, ... t b -> ... t tau").tril()
        written = einsum(xi, head.value_operator, "... tau a, T a -> ... tau T")
        y = y + einsum(alpha, written, "... t tau, ... tau T -> ... t T")
    return y


@torch.no_grad()
def invariant_output(model: LayeredModel, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch L V"]:
    """The forward pass, through the operators alone.

    A single layer is a function of its token operators. Layers above the first read what those below them wrote,
    so there the operators on the residual stream are chained.

    Paper: Eq. 10; layers as in Alg. 3 (`app-alg:mamba-layers`), heads as in Alg. 4 (`alg:mamba-2`).
    """
    E, residual = model.E, getattr(model.spec, "residual", False)
    x = one_hot_tokens(tokens, model.vocab_size, dtype=E.dtype)
    if len(model.layers) == 1:
        y = read_through(layer_operators(model.layers[0], E), x)
        return y + x @ E.T @ E if residual else y
    stream = x @ E.T
    for layer in model.layers:
        said = read_through(layer_operators(layer, torch.eye(len(E), dtype=E.dtype, device=E.device)), stream)
        stream = stream + said if residual else said
    return stream @ E
