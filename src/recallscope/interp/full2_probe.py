"""Full Mamba-2 seen as attention: one map per head, as the channels of a head decay alike."""

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.models import Full2Mamba
from recallscope.ops.ssd import segment_sums


@torch.no_grad()
def head_attention(
    model: Full2Mamba, tokens: Int[Tensor, "batch L"], *, layer: int = -1
) -> Float[Tensor, "batch M L L"]:
    """α_τt of every head: ŷ_t = Σ_τ α_τt x̂_τ, skip aside, with α_τt = B_τᵀ C_t exp(A Σ_{τ<s<=t} Δ_s) Δ_τ.

    Paper: App. D.5 (`noisy-attn`), for the recurrence of Eq. 3 (`eq:original-ssm`) with one decay per head.
    """
    trace, mixer = model.trace(tokens).layers[layer], model.layers[layer].mixer
    assert trace.delta is not None
    delta = trace.delta[..., :: mixer.spec.head_dim]  # batch L M: the channels of a head share it
    fading = torch.exp(segment_sums((delta * mixer.transition()).mT))  # batch M t tau
    match = einsum(trace.B, trace.C, "batch tau M N, batch t M N -> batch M tau t")
    return match * fading.mT * delta.mT[..., None]
