"""The simplified SSM, h_t = h_{t-1} + x̂_t B_tᵀ and ŷ_t = h_t C_t: as printed, as attention, and read where asked.

As masked attention, ŷ_t = Σ_{τ≤t} x̂_τ α_τt with α_τt = B_τᵀ C_t, no state is kept; long sequences go in chunks, with
the state carried from one to the next, so memory grows with L times the chunk instead of L².
"""

import torch
from einops import einsum
from jaxtyping import Float, Int, Shaped
from torch import Tensor

CHUNK = 256  # tokens; up to here the L x L attention of one sequence is small


def hidden_states(
    x_hat: Float[Tensor, "*batch L D_in"], B: Float[Tensor, "*batch L N"]
) -> Float[Tensor, "*batch L D_in N"]:
    """State after every token, h_t = h_{t-1} + x̂_t B_tᵀ.

    Paper: Eq. 4 (`eq:simple-ssm`), shapes in App. B.3 (`app-subsec:ssm-dims`).
    """
    writes = einsum(x_hat, B, "... L D_in, ... L N -> ... L D_in N")
    return writes.cumsum(dim=-3)


def scan_loop(
    x_hat: Float[Tensor, "*batch L D_in"], B: Float[Tensor, "*batch L N"], C: Float[Tensor, "*batch L N"]
) -> Float[Tensor, "*batch L D_in"]:
    """One token after another, as Eq. 4 is printed: the plain twin of all forms below.

    Paper: Eq. 4 (`eq:simple-ssm`).
    """
    *batch, L, D_in = x_hat.shape
    h = x_hat.new_zeros(*batch, D_in, B.shape[-1])
    y_hat = []
    for t in range(L):
        h = h + einsum(x_hat[..., t, :], B[..., t, :], "... D_in, ... N -> ... D_in N")
        y_hat.append(einsum(h, C[..., t, :], "... D_in N, ... N -> ... D_in"))
    return torch.stack(y_hat, dim=-2)


def linear_scan(
    x_hat: Float[Tensor, "*batch L D_in"],
    B: Float[Tensor, "*batch L N"],
    C: Float[Tensor, "*batch L N"],
    chunk: int = CHUNK,
) -> Float[Tensor, "*batch L D_in"]:
    """ŷ after every token: attention inside a chunk, the state from one chunk to the next.

    Paper: Eq. 4 (`eq:simple-ssm`); α_τt = B_τᵀ C_t as in the proof of Thm G.1 (`app-thm:multi-layer-recall`).
    """
    if chunk < 1:
        raise ValueError(f"chunk={chunk} holds no token. Use chunk >= 1; {CHUNK} suits most models.")
    *batch, L, D_in = x_hat.shape
    h = x_hat.new_zeros(*batch, D_in, B.shape[-1])
    y_hat = []
    for start in range(0, L, chunk):
        now = slice(start, start + chunk)
        x_c, B_c, C_c = x_hat[..., now, :], B[..., now, :], C[..., now, :]
        alpha = einsum(C_c, B_c, "... t N, ... tau N -> ... t tau").tril()
        y_c = einsum(alpha, x_c, "... t tau, ... tau D_in -> ... t D_in")
        if start:
            y_c = y_c + einsum(h, C_c, "... D_in N, ... t N -> ... t D_in")
        y_hat.append(y_c)
        if start + chunk < L:
            h = h + einsum(x_c, B_c, "... tau D_in, ... tau N -> ... D_in N")
    return torch.cat(y_hat, dim=-2)


def read_at(
    x_hat: Float[Tensor, "*batch L D_in"],
    B: Float[Tensor, "*batch L N"],
    C_q: Float[Tensor, "*batch Q N"],
    positions: Int[Tensor, "*batch Q"],
) -> Float[Tensor, "*batch Q D_in"]:
    """ŷ at the given positions only, from C at those positions: Q rows of the attention form instead of L.

    Paper: Eq. 4 (`eq:simple-ssm`), read where the task asks (Sec. 2, `par:mqar-definition`).
    """
    past = torch.arange(x_hat.shape[-2], device=positions.device) <= positions[..., None]
    alpha = einsum(C_q, B, "... Q N, ... tau N -> ... Q tau") * past
    return einsum(alpha, x_hat, "... Q tau, ... tau D_in -> ... Q D_in")


def at_positions(
    values: Shaped[Tensor, "*batch L C"], positions: Int[Tensor, "*batch Q"]
) -> Shaped[Tensor, "*batch Q C"]:
    """The rows of `values` at the given positions, which each sequence has its own of; one may come twice."""
    index = positions[..., None].expand(*positions.shape, values.shape[-1])
    return values.gather(dim=-2, index=index)
