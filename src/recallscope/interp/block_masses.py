"""Where the operators live: the share of each block in the squared norm of G_vv and G_kq."""

from dataclasses import dataclass

from einops import einsum
from jaxtyping import Float
from torch import Tensor

from recallscope.interp.operators import Operators
from recallscope.interp.vocabulary import blocks


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
