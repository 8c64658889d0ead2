"""The operators of a model on tokens: one head at a time, all heads as one, and the factor that they leave free."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.capabilities import HasOperators, HasRotations
from recallscope.architectures.model import RecallModel
from recallscope.architectures.operators import Operators, key_tokens, one_hot_tokens, value_tokens, windows


def operators_by_layer(model: RecallModel) -> tuple[tuple[Operators, ...], ...]:
    """The operators of every head of every layer on tokens, each layer read at its own best delay.

    Paper: Eq. 9 (`eq:proj-opertators`); layers as in Thm G.1 (`app-thm:multi-layer-recall`).
    """
    return tuple(with_best_delay(heads) for heads in model.require(HasOperators).operators())


def token_operators(model: RecallModel, *, layer: int = 0) -> tuple[Operators, ...]:
    """The operators of one layer on tokens, one per head.   Paper: Eq. 9 (`eq:proj-opertators`)."""
    layers = operators_by_layer(model)
    if not -len(layers) <= layer < len(layers):
        raise ValueError(f"layer={layer}, and the model has {len(layers)}. Use 0 <= layer < {len(layers)}.")
    return layers[layer]


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


def strength(ops: Operators) -> float:
    """How much a stored fact raises its value's logit, whatever the scale: the product of both mean diagonals.

    Windows of more than two tokens hold a fact more than once; what it adds each time is summed.
    """
    delays = range(max(1, ops.conv_width - 1))
    diagonals = [mean_diagonals(replace(ops, delay=delay)) for delay in delays]
    return sum(value * match for value, match in diagonals)


def fix_scale(ops: Operators) -> Operators:
    """The same function with G_vv of mean diagonal 1 over values; G_kq takes the factor, sign included.

    Paper: Eq. 10 leaves this factor free, Eq. 11 (`eq:Gvv-Gkq`) needs it fixed.
    """
    c, _ = mean_diagonals(ops)
    if c == 0:
        raise ValueError(
            "G_vv has mean diagonal 0 over values: this head carries none, and has no scale. Look at another head."
        )
    return replace(ops, Pi_v_out=ops.Pi_v_out / c, Pi_k_in=ops.Pi_k_in * c)


def stack_operators(parts: Sequence[Operators]) -> Operators:
    """Several heads or layers as one, added up whatever their scales.

    G_vv is what a stored value adds when its own key is asked, G_kq is what a match adds to the value's own logit, and
    both are sums over the parts. Keys are stacked, Ẽ_eff = (F¹; F²; ...) E: the effective F of the theorem. One pair
    of operators summarises many; it is the same function only where all parts share G_vv or G_kq.

    Paper: Thm G.1 (`app-thm:multi-layer-recall`), before `eq:multi-layer-recall-out`.
    """
    if len(parts) == 1:
        return parts[0]
    diagonals = [mean_diagonals(part) for part in parts]
    total = sum(value * match for value, match in diagonals) or 1.0
    return Operators(
        Pi_v_in=torch.cat([part.Pi_v_in for part in parts]),
        Pi_v_out=torch.cat([part.Pi_v_out * (m / total) for part, (_, m) in zip(parts, diagonals, strict=True)], dim=1),
        Pi_k_in=torch.cat([part.Pi_k_in * v for part, (v, _) in zip(parts, diagonals, strict=True)]),
        Pi_q_in=torch.cat([part.Pi_q_in for part in parts]),
        delay=parts[0].delay,
    )


def effective_operators(model: RecallModel) -> Operators:
    """All heads of all layers, stacked.   Paper: Thm G.1 (`app-thm:multi-layer-recall`)."""
    parts = [head for heads in operators_by_layer(model) for head in heads]
    return stack_operators(with_best_delay(parts))


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
def invariant_output(model: RecallModel, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch L V"]:
    """The forward pass, through the operators alone.

    A single layer is a function of its token operators. Layers above the first read what those below them wrote,
    so there the operators on the residual stream are chained.

    Paper: Eq. 10; layers as in Alg. 3 (`app-alg:mamba-layers`), heads as in Alg. 4 (`alg:mamba-2`).
    """
    able = model.require(HasOperators)
    stream, layers = able.embed(tokens), able.operators()
    if len(layers) == 1:
        y = read_through(layers[0], one_hot_tokens(tokens, model.vocab_size, dtype=stream.dtype))
        return y + able.unembed(stream) if able.residual else y
    for heads in able.operators("stream"):
        said = read_through(heads, stream)
        stream = stream + said if able.residual else said
    return able.unembed(stream)


def rotate_model(model: RecallModel, generator: torch.Generator, *, spread: float = 0.5) -> RecallModel:
    """An equivalent copy with other weights: the freedom because of which weights cannot be read directly.

    Paper: Sec. 3.2 (`par:equiv-recall`).   Holds for: linear and multi-head models; see `OperatorModel.rotated`.
    """
    rotated: RecallModel = model.require(HasRotations).rotated(generator, spread=spread)
    return rotated
