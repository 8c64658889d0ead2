"""How near a model is to the recall circuit, whatever its rotation; and the circuit it is nearest to.

Block masses say where the operators live: the share of each block in the squared norm of G_vv and G_kq.

A single linear layer is its pair (G_vv, G_kq). The circuits are the pairs G_vv = (0 | EᵀE) and
G_kq = [[0, ẼᵀẼ], [0, 0]]: nothing outside the predicted blocks, and inside symmetric and positive.
"""

from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from recallscope.architectures.operators import Operators, blocks
from recallscope.interp.operators import mean_diagonals

FAINT = 5e-4  # directions of E this much shorter than the longest are rounding errors of float32 weights


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
    """Embedding and hash of the circuit; `recallscope.circuits.compressive_circuit(E, F)` is the model."""

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
