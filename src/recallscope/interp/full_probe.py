"""Full Mamba: what of the circuit can still be seen once gate, SiLU, Δ and decay are in the way.

Carries over: attention, now one map per channel and with decay; facts that a linear probe reads off the state; keys
that answer to the token after them; and facts that can be exchanged in the state (`full_surgery`), if v' and k' are
averaged over what the model does. Does not: G_vv and G_kq, with them decoding by Alg. 2 from weights alone, and the
rotations. All of these multiply weights, and between the weights there now are functions of the input.
"""

from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot, pad

from recallscope.architectures.layered import LayeredModel
from recallscope.architectures.mamba2_model import Full2Mamba
from recallscope.architectures.mamba_model import FullMamba
from recallscope.interp.attention import value_positions
from recallscope.interp.full2_probe import head_attribution
from recallscope.interp.states import context_end, facts_at, states_at
from recallscope.tasks import Batch

PREVIOUS_TOKENS = 16  # draws over which the query code of a key is averaged


@torch.no_grad()
def implicit_attention(
    model: FullMamba, tokens: Int[Tensor, "batch L"], *, layer: int = -1
) -> Float[Tensor, "batch D_in L L"]:
    """α_τt of every channel: ŷ_t = Σ_τ α_τt x̂_τ, skip aside, with α_τt = Σ_n C_t (Π_{τ<s<=t} Ā_s) B̄_τ.

    Each source's write is carried along as it decays; where Ā = I nothing does, and all channels share one map.

    Paper: App. D.5 (`noisy-attn`), for the recurrence of Eq. 3 (`eq:original-ssm`).
    """
    trace, mixer = model.trace(tokens).layers[layer], model.layers[layer].mixer
    (count, L), (D_in, N) = tokens.shape, (trace.x_hat.shape[-1], trace.B.shape[-1])
    writes = trace.B.new_zeros(count, L, D_in, N)
    maps = trace.B.new_zeros(count, D_in, L, L)
    for t in range(L):
        if trace.delta is None or mixer.A_log is None:
            writes[:, t] = trace.B[:, t, None, :]
        else:
            delta = trace.delta[:, t, :, None]
            writes *= torch.exp(delta * -torch.exp(mixer.A_log))[:, None]
            writes[:, t] = delta * trace.B[:, t, None, :]
        maps[..., t] = einsum(writes, trace.C[:, t], "batch tau D_in N, batch N -> batch D_in tau")
    return maps


@torch.no_grad()
def attention_strength(model: FullMamba, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch L L"]:
    """Length of what every source τ adds to the stream at t, all channels together: one map (source, query).

    Paper: App. D.5 (`noisy-attn`), weighted with what it moves.
    """
    trace, mixer = model.trace(tokens).layers[-1], model.layers[-1].mixer
    alpha = implicit_attention(model, tokens)
    gate = torch.ones_like(trace.x_hat) if trace.gate is None else trace.gate
    lengths = []
    for t in range(tokens.shape[1]):
        heard = alpha[..., t].mT * trace.x_hat * gate[:, t, None]
        lengths.append(mixer.project_out(heard, None).norm(dim=-1))
    return torch.stack(lengths, dim=-1)


@torch.no_grad()
def answer_attribution(model: FullMamba, batch: Batch) -> Float[Tensor, "batch Q L"]:
    """How much every source adds to the logit of the right answer, before the last norm divides by its length.

    Paper: α of App. D.5 (`noisy-attn`), weighted with what it moves.
    """
    positions, count = batch.query_positions, len(batch)
    trace, mixer = model.trace(batch.tokens).layers[-1], model.layers[-1].mixer
    maps = implicit_attention(model, batch.tokens)
    rows = torch.arange(count)[:, None]
    alpha = maps.permute(0, 3, 1, 2)[rows, positions]  # batch Q D_in L
    weight = getattr(model.norm_f, "weight", None)
    wanted = model.E.T[batch.answers] if weight is None else model.E.T[batch.answers] * weight
    towards = wanted @ mixer.out_proj.weight  # batch Q D_in
    if trace.gate is not None:
        towards = towards * trace.gate[rows, positions]
    return einsum(towards, alpha, trace.x_hat, "batch Q D_in, batch Q D_in tau, batch tau D_in -> batch Q tau")


@torch.no_grad()
def query_codes(model: LayeredModel, generator: torch.Generator, *, layer: int = -1) -> Float[Tensor, "V M N"]:
    """C of every token as a query, averaged over what may stand before it."""
    V, n = model.vocab_size, PREVIOUS_TOKENS
    before = torch.randint(V, (V * n,), generator=generator)
    asked = torch.arange(V).repeat_interleave(n)
    C = model.trace(torch.stack((before, asked), dim=1)).layers[layer].C[:, -1]
    C = C if C.ndim == 3 else C[:, None]
    return C.unflatten(0, (V, n)).mean(dim=1)


@dataclass(frozen=True)
class ProbeScores:
    """A linear map from the state, read with a key's own code, to the value stored under it."""

    accuracy: float
    """facts whose value the probe names, on fresh sequences"""
    control: float
    """the same probe, trained and tested with the keys of each sequence shuffled"""


@torch.no_grad()
def probe_facts(
    model: LayeredModel, train: Batch, test: Batch, generator: torch.Generator, *, ridge: float = 1e-3
) -> ProbeScores:
    """Ridge regression from h c_k to the one-hot value of key k, after the context; c_k is k's mean query code.

    Paper: Fig. 3 (`fig:reversing-hidden`), with a fitted map where full Mamba has no fixed one.   Holds for: any model.
    """
    codes = query_codes(model, generator)

    def features(batch: Batch, shuffled: bool) -> tuple[Tensor, Tensor]:
        t = context_end(batch)
        keys, values = facts_at(batch, t)
        if shuffled:
            order = torch.rand(keys.shape, generator=generator).argsort(dim=1)
            keys = keys.gather(1, order)
        state = states_at(model, batch.tokens, t)[-1]
        M = max(state.shape[1], codes.shape[1])
        state, code = state.expand(-1, M, -1, -1), codes.expand(-1, M, -1)[keys]
        read = einsum(state, code, "batch M P N, batch n M N -> batch n M P").flatten(2).flatten(0, 1)
        return pad(read.double(), (0, 1), value=1.0), values.flatten()

    def accuracy(shuffled: bool) -> float:
        X, labels = features(train, shuffled)
        Y = one_hot(labels, model.vocab_size).double()
        scale = X.square().mean()
        W = torch.linalg.solve(X.T @ X + ridge * scale * len(X) * torch.eye(X.shape[1]).double(), X.T @ Y)
        X_new, wanted = features(test, shuffled)
        return float(((X_new @ W).argmax(dim=1) == wanted).double().mean())

    return ProbeScores(accuracy=accuracy(False), control=accuracy(True))


@dataclass(frozen=True)
class ShiftScores:
    """B_τ · C_t at queries t, in standard deviations of unrelated places."""

    shifted: float
    """where x_{τ-1} is the token asked for: large, if keys answer one place later"""
    unshifted: float
    """where x_τ itself is: small, if they do not answer in place"""


@torch.no_grad()
def shift_test(model: LayeredModel, batch: Batch, *, layer: int = -1) -> ShiftScores:
    """Does a key answer at the place after it? From B and C as the model computes them, gate and decay aside.

    Paper: Fig. 15 (`fig:reversing-conv`), for models without G_kq.   Holds for: any model.
    """
    trace = model.trace(batch.tokens).layers[layer]
    B, C = (v if v.ndim == 4 else v[:, :, None] for v in (trace.B, trace.C))
    alpha = einsum(B, C, "batch tau M N, batch t M N -> batch tau t").double()
    t = batch.query_positions
    at_queries = alpha.gather(2, t[:, None].expand(-1, alpha.shape[1], -1))
    asked = batch.tokens.gather(1, t)
    previous = pad(batch.tokens, (1, 0), value=-1)[:, :-1]
    shifted = previous[:, :, None] == asked[:, None]
    unshifted = (batch.tokens[:, :, None] == asked[:, None]) & ~shifted
    past = torch.arange(alpha.shape[1])[:, None] < t[:, None]
    rest = at_queries[past & ~shifted & ~unshifted]
    return ShiftScores(*(float((at_queries[past & w].mean() - rest.mean()) / rest.std()) for w in (shifted, unshifted)))


def attribution_hit_rate(model: FullMamba | Full2Mamba, batch: Batch) -> float:
    """Share of queries for which the place of the fact's value adds most to the right answer.

    Paper: App. D.5 (`noisy-attn`).
    """
    added = head_attribution(model, batch) if isinstance(model, Full2Mamba) else answer_attribution(model, batch)
    best = added.argmax(dim=-1)
    return float((best == value_positions(batch)).double().mean())
