"""Full Mamba-2 seen as attention: one map per head, as the channels of a head decay alike."""

from collections.abc import Callable

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.mamba2_model import Full2Mamba
from recallscope.ops.ssd import segment_sums
from recallscope.tasks import Batch


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


@torch.no_grad()
def head_attention_strength(model: Full2Mamba, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch L L"]:
    """Length of what every source τ adds to the stream at t, all heads together: one map (source, query).

    Before the gated norm divides by the length of the whole, which is the same for all sources.

    Paper: App. D.5 (`noisy-attn`), weighted with what it moves.
    """
    mixer = model.layers[-1].mixer
    heard, gate = _heard(model, tokens)
    lengths = []
    for t in range(tokens.shape[1]):
        lengths.append((heard(t) * gate[:, t, None] @ mixer.out_proj.weight.T).norm(dim=-1))
    return torch.stack(lengths, dim=-1)


@torch.no_grad()
def head_attribution(model: Full2Mamba, batch: Batch) -> Float[Tensor, "batch Q L"]:
    """How much every source adds to the logit of the right answer, before the norms divide by their lengths.

    Paper: α of App. D.5 (`noisy-attn`), weighted with what it moves.
    """
    mixer, positions = model.layers[-1].mixer, batch.query_positions
    heard, gate = _heard(model, batch.tokens)
    weight = getattr(model.norm_f, "weight", None)
    wanted = model.E.T[batch.answers] if weight is None else model.E.T[batch.answers] * weight
    towards = wanted @ mixer.out_proj.weight  # batch Q D_in
    rows = torch.arange(len(batch))
    found = []
    for q in range(positions.shape[1]):
        t = positions[:, q]
        direction = towards[:, q] * gate[rows, t]
        found.append(einsum(heard(t), direction, "batch tau D_in, batch D_in -> batch tau"))
    return torch.stack(found, dim=1)


def _heard(
    model: Full2Mamba, tokens: Int[Tensor, "batch L"]
) -> tuple[Callable[[int | Tensor], Tensor], Float[Tensor, "batch L D_in"]]:
    """What the channels hear of every source at a time t (`batch tau D_in`), and gate times norm weight."""
    trace, mixer = model.trace(tokens).layers[-1], model.layers[-1].mixer
    assert trace.x_heads is not None
    assert trace.gate is not None
    alpha, x_heads = head_attention(model, tokens), trace.x_heads
    rows = torch.arange(len(tokens))

    def heard(t: int | Tensor) -> Tensor:
        weights = alpha[..., t] if isinstance(t, int) else alpha[rows, :, :, t]  # batch M tau
        return (weights.mT[..., None] * x_heads).flatten(2)

    return heard, trace.gate * mixer.norm.weight
