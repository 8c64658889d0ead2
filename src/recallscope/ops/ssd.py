"""The selective scan of Mamba-2, where a head decays as one: h_t = exp(Δ_t A) h_{t-1} + Δ_t x̂_t B_tᵀ and ŷ_t = h_t C_t.

With one number per head and token the scan is attention with a mask that fades,
α_τt = B_τᵀ C_t exp(A Σ_{τ<s<=t} Δ_s) Δ_τ. In chunks it is both by turns: attention inside a chunk, a state from one
chunk to the next. As everywhere in this package an axis of heads has length M, or 1 where the heads share
(`head_patterns.py`).
"""

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

SSD_CHUNK = 64  # tokens; the fading mask takes chunk² numbers per head


def ssd_states_loop(
    x_heads: Float[Tensor, "*batch L #M P"],
    delta: Float[Tensor, "*batch L M"],
    A: Float[Tensor, " M"],
    B: Float[Tensor, "*batch L #M N"],
) -> Float[Tensor, "*batch L M P N"]:
    """State of every head after every token.

    Paper: Eq. 2 (`eq:TimeVariantMatrices1`) and Eq. 3 (`eq:original-ssm`), with one Δ and one A per head.
    """
    decay, writes = torch.exp(delta * A), einsum(x_heads, B, "... L M P, ... L M N -> ... L M P N")
    writes = writes * delta[..., None, None]
    h, states = torch.zeros_like(writes[..., 0, :, :, :]), []
    for t in range(delta.shape[-2]):
        h = decay[..., t, :, None, None] * h + writes[..., t, :, :, :]
        states.append(h)
    return torch.stack(states, dim=-4)


def ssd_loop(
    x_heads: Float[Tensor, "*batch L #M P"],
    delta: Float[Tensor, "*batch L M"],
    A: Float[Tensor, " M"],
    B: Float[Tensor, "*batch L #M N"],
    C: Float[Tensor, "*batch L #M N"],
) -> Float[Tensor, "*batch L M P"]:
    """One token after another, every state kept: the plain twin.   Paper: Eq. 2-3 (`eq:original-ssm`)."""
    h = ssd_states_loop(x_heads, delta, A, B)
    return einsum(h, C, "... L M P N, ... L M N -> ... L M P")


def ssd_scan(
    x_heads: Float[Tensor, "*batch L #M P"],
    delta: Float[Tensor, "*batch L M"],
    A: Float[Tensor, " M"],
    B: Float[Tensor, "*batch L #M N"],
    C: Float[Tensor, "*batch L #M N"],
    chunk: int = SSD_CHUNK,
) -> Float[Tensor, "*batch L M P"]:
    """ŷ of every head after every token, in chunks; any L, the last chunk may be short.

    Paper: Eq. 2-3 (`eq:original-ssm`), with one Δ and one A per head; structured state space duality of Mamba-2.
    """
    if chunk < 1:
        raise ValueError(f"chunk={chunk} holds no token. Use chunk >= 1; {SSD_CHUNK} suits most models.")
    h, y = None, []
    for start in range(0, delta.shape[-2], chunk):
        now = slice(start, start + chunk)
        x_c, B_c, C_c, delta_c = x_heads[..., now, :, :], B[..., now, :, :], C[..., now, :, :], delta[..., now, :]
        rates = (delta_c * A).mT  # ... M t
        fading = torch.exp(segment_sums(rates))  # ... M t tau
        written = x_c * delta_c[..., None]
        alpha = einsum(C_c, B_c, "... t M N, ... tau M N -> ... M t tau") * fading
        y_c = einsum(alpha, written, "... M t tau, ... tau M P -> ... t M P")
        kept = einsum(written, fading[..., -1, :], B_c, "... tau M P, ... M tau, ... tau M N -> ... M P N")
        if h is not None:
            since_start = torch.exp(rates.cumsum(dim=-1))  # ... M t
            y_c = y_c + einsum(h, C_c, since_start, "... M P N, ... t M N, ... M t -> ... t M P")
            kept = kept + since_start[..., -1, None, None] * h
        h = kept
        y.append(y_c)
    return torch.cat(y, dim=-3)


def segment_sums(rates: Float[Tensor, "*batch M t"]) -> Float[Tensor, "*batch M t t"]:
    """Σ_{τ<s<=t} rates_s for τ <= t, and -∞ above the diagonal.

    Every entry is summed on its own: differences of one cumulative sum would lose digits where it is large.
    """
    t = rates.shape[-1]
    lower = torch.ones(t, t, dtype=torch.bool, device=rates.device).tril()
    terms = rates[..., :, None].expand(*rates.shape, t).masked_fill(~lower.tril(-1), 0.0)
    return terms.cumsum(dim=-2).masked_fill(~lower, -torch.inf)
