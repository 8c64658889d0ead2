"""The operators of a model on tokens: one head at a time, all heads as one, and how near they are to the circuit's.

Block masses say where the operators live: the share of each block in the squared norm of G_vv and G_kq.

A single linear layer is its pair (G_vv, G_kq). The circuits are the pairs G_vv = (0 | EᵀE) and
G_kq = [[0, ẼᵀẼ], [0, 0]]: nothing outside the predicted blocks, and inside symmetric and positive.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.capabilities import (
    HasOperators,
    HasRotations,
    Operators,
    blocks,
    key_tokens,
    one_hot_tokens,
    value_tokens,
    windows,
)
from recallscope.architectures.model import RecallModel

FAINT = 5e-4  # directions of E this much shorter than the longest are rounding errors of float32 weights


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
    choices = [tuple(replace(part, delay=delay) for part in parts) for delay in delays(parts[0])]
    return max(choices, key=lambda choice: abs(rise(choice)))


def delays(ops: Operators) -> range:
    """At which a window can hold a fact."""
    return range(max(1, ops.conv_width - 1))


def rise(parts: Sequence[Operators]) -> float:
    """How much a stored fact raises its value's logit, all parts together: products of both mean diagonals."""
    return sum(value * match for value, match in map(mean_diagonals, parts))


def strength(ops: Operators) -> float:
    """How much a stored fact raises its value's logit, whatever the scale: the product of both mean diagonals.

    Windows of more than two tokens hold a fact more than once; what it adds each time is summed.
    """
    return rise([replace(ops, delay=delay) for delay in delays(ops)])


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
    total = rise(parts) or 1.0
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
        output = read_through(heads, stream)
        stream = stream + output if able.residual else output
    return able.unembed(stream)


def rotate_model(model: RecallModel, generator: torch.Generator, *, spread: float = 0.5) -> RecallModel:
    """An equivalent copy with other weights: the freedom because of which weights cannot be read directly.

    Paper: Sec. 3.2 (`par:equiv-recall`).   Holds for: linear and multi-head models; see `OperatorModel.rotated`.
    """
    rotated: RecallModel = model.require(HasRotations).rotated(generator, spread=spread)
    return rotated


@dataclass(frozen=True)
class BlockMasses:
    """Shares of the squared Frobenius norm, block by block; windows are oldest token first.

    Paper: Eq. 11 (`eq:Gvv-Gkq`), App. D.1 (`app-subsec:invariant-ops`).
    Departs: with the shapes of Eq. 9 the circuit has G_vv = (0 | I) and G_kq = [[0, I], [0, 0]], printed transposed.
    """

    value: Float[Tensor, " W"]
    """G_vv, by token of the window that was stored"""
    match: Float[Tensor, "W W"]
    """G_kq, by token of the stored window and token of the asking one"""
    delay: int
    """places by which the predicted blocks stand earlier in the stored window; 0 for windows of two"""

    @property
    def g_vv(self) -> float:
        """Share of G_vv in the block of the value: 1 in the circuit."""
        return float(self.value[-1 - self.delay])

    @property
    def g_kq(self) -> float:
        """Share of G_kq in the block (previous token, query): 1 in the circuit, 0 where windows are of one token."""
        return float(self.match[-2 - self.delay, -1]) if len(self.match) > 1 else 0.0


def block_masses(ops: Operators) -> BlockMasses:
    """Where the operators live, from Gram matrices alone: |AᵀB|² is the inner product of A Aᵀ and B Bᵀ."""

    def grams(taps: Tensor) -> Tensor:
        return taps.double() @ taps.double().mT

    out = ops.Pi_v_out.double()
    values, keys, queries = (grams(blocks(part, ops.size)) for part in (ops.Pi_v_in, ops.Pi_k_in, ops.Pi_q_in))
    value = einsum(out.T @ out, values, "a b, W a b -> W")
    match = einsum(keys, queries, "W a b, U a b -> W U")
    return BlockMasses(value=value / value.sum(), match=match / match.sum(), delay=ops.delay)


@dataclass(frozen=True)
class NearestCircuit:
    """Embedding and hash of the circuit; `recallscope.circuits.linear.compressive_circuit(E, F)` is the model."""

    E: Float[Tensor, "D V"]
    F: Float[Tensor, "N D"]

    @property
    def operators(self) -> Operators:
        """Its net operators, G_vv = (0 | EᵀE) and G_kq = [[0, ẼᵀẼ], [0, 0]].   Paper: Eq. 11 (`eq:Gvv-Gkq`)."""
        E, E_tilde = self.E, self.F @ self.E
        return Operators(
            Pi_v_in=torch.cat((torch.zeros_like(E), E), dim=1),
            Pi_v_out=E.T,
            Pi_k_in=torch.cat((E_tilde, torch.zeros_like(E_tilde)), dim=1),
            Pi_q_in=torch.cat((torch.zeros_like(E_tilde), E_tilde), dim=1),
        )


def circuit_closeness(ops: Operators) -> float:
    """Share of the squared norm of G_vv ⊗ G_kq, which is what the model computes, that a circuit can have.

    It is 1 if and only if circuits with codes E and F come as near as one likes to the same function (windows of two,
    one layer without residual). Rotations, and the factor between G_vv and G_kq, leave it unchanged.

    Paper: Sec. 3.2 (`par:equiv-recall`), made a number.
    """

    def share(positive_of: float) -> float:
        parts = (
            (ops.Pi_v_out.T, ops.encoded_values, ops.Pi_v_out.T, ops.Pi_v_in),
            (ops.hashed_keys, ops.hashed_queries, ops.Pi_k_in, ops.Pi_q_in),
        )
        product = 1.0
        for left, right, whole_left, whole_right in parts:
            eigenvalues, _ = symmetric_spectrum(positive_of * left, right)
            product *= float(eigenvalues.clamp(min=0).square().sum()) / product_norm(whole_left, whole_right)
        return product

    return max(share(1.0), share(-1.0))


def nearest_circuit(ops: Operators, *, embed_dim: int, state_dim: int) -> NearestCircuit:
    """The E and F whose Gram matrices come nearest to the predicted blocks of G_vv and G_kq, diagonals near 1.

    Paper: App. D.4 (`app-subsec:inspect-hash`) says that F is nowhere in the weights; it is in the operators.
    Holds for: models whose G_vv tells keys apart, however faintly; where it does not, no E has F E = Ẽ.
    """
    value, match = mean_diagonals(ops)
    if value * match == 0:
        raise ValueError(
            f"the operators have mean diagonals {value} (values) and {match} (keys): no fact raises the logit of its "
            f"value, so no circuit is near. Train the model, or look at another head."
        )
    E = gram_code(ops.Pi_v_out.T / value, ops.encoded_values, dim=embed_dim)
    E_tilde = gram_code(ops.hashed_keys / match, ops.hashed_queries, dim=state_dim)
    F = E_tilde @ torch.linalg.pinv(E, rtol=FAINT)
    dtype = ops.Pi_v_in.dtype
    return NearestCircuit(E=E.to(dtype), F=F.to(dtype))


def gram_code(left: Float[Tensor, "r V"], right: Float[Tensor, "r V"], *, dim: int) -> Float[Tensor, "dim V"]:
    """The code of `dim` dimensions whose Gram matrix is nearest to leftᵀ right; a square root, fixed up to rotation."""
    eigenvalues, vectors = symmetric_spectrum(left, right)
    code = eigenvalues.clamp(min=0).sqrt()[:, None] * vectors.T
    code = code.flip(0)[:dim]
    missing = dim - len(code)
    return torch.cat((code, code.new_zeros(missing, code.shape[1]))) if missing > 0 else code


def symmetric_spectrum(
    left: Float[Tensor, "r V"], right: Float[Tensor, "r V"]
) -> tuple[Float[Tensor, " m"], Float[Tensor, "V m"]]:
    """Eigenvalues (ascending) and eigenvectors of the symmetric part of leftᵀ right, without the V x V matrix."""
    left, right = left.double(), right.double()
    basis, upper = torch.linalg.qr(torch.cat((left, right)).T)
    a, b = upper.split([len(left), len(right)], dim=1)
    product = a @ b.T
    eigenvalues, small = torch.linalg.eigh((product + product.T) / 2)
    return eigenvalues, basis @ small


def product_norm(left: Float[Tensor, "r A"], right: Float[Tensor, "r B"]) -> float:
    """Squared Frobenius norm of leftᵀ right."""
    left, right = left.double(), right.double()
    return float(((left @ left.T) * (right @ right.T)).sum())
