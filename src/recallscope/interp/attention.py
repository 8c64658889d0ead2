"""A model seen as attention: which earlier token does a token listen to, and what does that add to the answer?

Maps are (source τ, query t), as the paper writes α_τt; the circuit's is 1 where x_{τ-1} = x_t. `picture_arrays` has
the maps with all else that the figures of the mechanism draw.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from einops import einsum
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from recallscope.architectures.capabilities import (
    Attention,
    HasAttention,
    Operators,
    key_tokens,
    one_hot_tokens,
    value_tokens,
    windows,
)
from recallscope.architectures.model import RecallModel
from recallscope.interp.hash_table import hash_tables
from recallscope.interp.operators import effective_operators, mean_diagonals, strength, token_operators
from recallscope.interp.states import at_queries, earlier_tokens, share, value_positions
from recallscope.specs import TaskSpec
from recallscope.tasks.batch import Batch

MOST_TOKENS = 512  # a table of more has entries smaller than a dot of the picture


def ideal_attention(tokens: Int[Tensor, "*batch L"], *, delay: int = 0) -> Float[Tensor, "*batch L L"]:
    """α_τt = x_{τ-1}ᵀ x_t for τ <= t: what the uncompressed circuit attends to, `delay` tokens late.

    Paper: App. D.5 (`noisy-attn`), Fig. 14 (`fig:reversing-attn`).
    """
    return (earlier_tokens(tokens, 1 + delay)[..., :, None] == tokens[..., None, :]).float().triu()


@torch.no_grad()
def attention_map(
    model: RecallModel, tokens: Int[Tensor, "batch L"], *, layer: int = -1
) -> Float[Tensor, "batch maps L L"]:
    """α'_τt for τ <= t, one map per head, or per channel where channels decay apart; one for all where all share it.

    In a linear model of a single layer this is B_τᵀ C_t = ξ_τᵀ G_kq ξ_t; its scale and sign are the model's own.

    Paper: App. D.5 (`noisy-attn`), Fig. 14 (`fig:reversing-attn`).
    """
    return model.require(HasAttention).attention(tokens, layer).maps.flatten(1, 2)


def joint_attention(
    model: RecallModel, tokens: Int[Tensor, "batch L"], *, layer: int = -1
) -> Float[Tensor, "batch L L"]:
    """The maps of all heads as one, in units of one match: each counts as much as it raises values, sign included.

    Paper: App. D.5 (`noisy-attn`); for one head the map divided by the mean diagonal of G_kq.
    """
    maps = attention_map(model, tokens, layer=layer)
    diagonals = [mean_diagonals(part) for part in token_operators(model, layer=layer)]
    total = sum(value * match for value, match in diagonals)
    weights = maps.new_tensor([value / total for value, _ in diagonals])
    return einsum(weights, maps.expand(-1, len(diagonals), -1, -1), "M, batch M tau t -> batch tau t")


def _attended(attention: Attention, t: int) -> Float[Tensor, "batch tau heads P"]:
    """What is read of every source at t, gated."""
    readout = attention.maps[..., t].permute(0, 3, 1, 2) * attention.values
    return readout if attention.gate is None else readout * attention.gate[:, t, None]


@torch.no_grad()
def attention_strength(
    model: RecallModel, tokens: Int[Tensor, "batch L"], *, layer: int = -1
) -> Float[Tensor, "batch L L"]:
    """Length of what every source τ adds to the stream at t, all heads and channels together: one map (source, query).

    Paper: App. D.5 (`noisy-attn`), weighted with what it moves.
    """
    found = model.require(HasAttention).attention(tokens, layer)
    M, P = found.out.shape[1:]
    lengths = []
    for t in range(tokens.shape[1]):
        readout = _attended(found, t).expand(-1, -1, M, P)
        lengths.append(einsum(readout, found.out, "batch tau M P, D M P -> batch tau D").norm(dim=-1))
    return torch.stack(lengths, dim=-1)


@torch.no_grad()
def answer_attribution(model: RecallModel, batch: Batch) -> Float[Tensor, "batch Q L"]:
    """How much every source adds to the logit of the right answer, before norms divide by their lengths.

    Paper: α of App. D.5 (`noisy-attn`), weighted with what it moves.
    """
    able, positions = model.require(HasAttention), batch.query_positions
    found = able.attention(batch.tokens)
    wanted = able.logit_directions().T[batch.answers]
    towards = einsum(wanted, found.out, "batch Q D, D M P -> batch Q M P")
    rows = torch.arange(len(batch), device=positions.device)[:, None]
    if found.gate is not None:
        towards = towards * found.gate[rows, positions]
    alpha = found.maps.permute(0, 4, 3, 1, 2)[rows, positions]  # batch Q tau heads channels
    if alpha.shape[-1] == 1:  # one map for all channels of a head: they can be added up first
        offered = einsum(towards, found.values, "batch Q M P, batch tau M P -> batch Q tau M")
        return (alpha[..., 0] * offered).sum(dim=-1)
    return einsum(towards, alpha, found.values, "batch Q M P, batch Q tau M P, batch tau M P -> batch Q tau")


def attribution_hit_rate(model: RecallModel, batch: Batch) -> float:
    """Share of queries for which the place of the fact's value adds most to the right answer.

    Paper: App. D.5 (`noisy-attn`).
    """
    best = answer_attribution(model, batch).argmax(dim=-1)
    return share(best == value_positions(batch))


@dataclass(frozen=True)
class AttentionScores:
    """α' against α, at the queries."""

    hit_rate: float
    """share of queries that attend most to the value of their fact"""
    correlation: float
    """of α' and α over all sources and queries"""


def score_attention(alpha: Float[Tensor, "batch L L"], batch: Batch, *, delay: int = 0) -> AttentionScores:
    """How well a map (source, query), its sign fixed, finds the facts.   Paper: Fig. 14 (`fig:reversing-attn`)."""
    t = batch.query_positions
    found, ideal = at_queries(alpha, batch), at_queries(ideal_attention(batch.tokens, delay=delay), batch)
    past = torch.arange(alpha.shape[1], device=t.device)[:, None] <= t[:, None, :]
    best = found.masked_fill(~past, -torch.inf).argmax(dim=1)
    pairs = torch.stack((found[past], ideal[past].to(alpha.dtype))).double()
    return AttentionScores(
        hit_rate=share(best == value_positions(batch) + delay), correlation=float(torch.corrcoef(pairs)[0, 1])
    )


def copy_map(ops: Operators, tokens: Int[Tensor, "*batch L"]) -> Float[Tensor, "*batch L L"]:
    """x_tᵀ G_vv ξ_τ, (t, τ): near 1 where t = τ, if the convolution copies values.

    Paper: Fig. 15 (`fig:reversing-conv`).
    """
    x = one_hot_tokens(tokens, ops.size, dtype=ops.Pi_v_in.dtype)
    xi = windows(x, ops.conv_width)
    return (x @ ops.Pi_v_out) @ (xi @ ops.Pi_v_in.T).mT


def shift_map(ops: Operators, tokens: Int[Tensor, "*batch L"]) -> Float[Tensor, "*batch L L"]:
    """ξ_tᵀ G_kqᵀ ξ_τ, (t, τ): near 1 where t = τ - 1, if the convolution shifts keys.

    Paper: Fig. 15 (`fig:reversing-conv`).
    Departs: the text has G_kqᵀ ξ_τ close to ξ_{τ-1}; it is (0; x_{τ-1}). The map is the same.
    """
    xi = windows(one_hot_tokens(tokens, ops.size, dtype=ops.Pi_v_in.dtype), ops.conv_width)
    return (xi @ ops.Pi_q_in.T) @ (xi @ ops.Pi_k_in.T).mT


@dataclass(frozen=True)
class Dominance:
    """How far a diagonal stands out from the rest of its map."""

    hit_rate: float
    """share of columns whose largest entry is a predicted one"""
    contrast: float
    """mean of the predicted entries over the root mean square of all others; infinite where those are 0"""


def copy_dominance(ops: Operators, tokens: Int[Tensor, "batch L"]) -> Dominance:
    """Of the main diagonal of `copy_map`, over columns τ that hold a value; its repetitions count as predicted.

    Paper: Fig. 15 (`fig:reversing-conv`).
    """
    return _dominance(copy_map(ops, tokens), tokens, ops.delay, value_tokens(ops.size))


def shift_dominance(ops: Operators, tokens: Int[Tensor, "batch L"]) -> Dominance:
    """Of the second diagonal of `shift_map`, over columns τ that follow a key; its repetitions count as predicted.

    Paper: Fig. 15 (`fig:reversing-conv`).
    """
    return _dominance(shift_map(ops, tokens), tokens, 1 + ops.delay, key_tokens(ops.size))


def _dominance(maps: Float[Tensor, "batch L L"], tokens: Int[Tensor, "batch L"], lag: int, which: slice) -> Dominance:
    """Of entries (t, τ) whose token at t stood `lag` before τ, over columns τ where that token is one of `which`.

    The sign is such that predicted entries are positive on average.
    """
    earlier = earlier_tokens(tokens, lag)
    predicted = tokens[:, :, None] == earlier[:, None, :]
    columns = (earlier >= which.start) & (earlier < which.stop)
    chosen, wanted = maps.mT[columns].double(), predicted.mT[columns]  # columns as rows
    chosen = chosen * chosen[wanted].mean().sign()
    hits = wanted.gather(1, chosen.argmax(dim=1, keepdim=True))
    rest = chosen[~wanted].square().mean().sqrt()
    return Dominance(hit_rate=share(hits), contrast=float(chosen[wanted].mean() / rest))


def picture_arrays(model: RecallModel, batch: Batch, task: TaskSpec) -> dict[str, NDArray[Any]]:
    """Tables, maps and operators of the batch's first sequence, in units of one fact or one match.

    `facts` are rows (value, key) into the tables; `shown` are the tokens whose rows and columns are kept. Numbers are
    half precision: three digits, which is more than a picture shows.

    Paper: Fig. 3 (`fig:reversing-hidden`), Fig. 13-16 (`app-fig:reversing-hidden`, `fig:reversing-attn`,
        `fig:reversing-conv`, `app-fig:reversing-operators`).   Holds for: models with operators.
    """
    ops, tokens = effective_operators(model), batch.tokens
    value, match = mean_diagonals(ops)
    shown = tokens_to_show(batch, task.vocab_size)
    tables, few = hash_tables(model, batch, tokens=shown), ops.restricted(shown)
    arrays = {
        "ideal_table": tables.ideal[0],
        "hashed_table": tables.hashed[0],
        "decoded_table": tables.decoded[0] / strength(ops),
        "ideal_attention": ideal_attention(tokens, delay=ops.delay)[0],
        "attention": joint_attention(model, tokens)[0],
        "copied": copy_map(ops, tokens)[0] / value,
        "shifted": shift_map(ops, tokens)[0] / match,
        "value_operator": few.value_operator / value,
        "match_operator": few.match_operator / match,
    }
    kept: dict[str, NDArray[Any]] = {
        name: np.asarray(array.detach().cpu().numpy(), np.float16) for name, array in arrays.items()
    }
    facts = torch.stack((tables.values[0], tables.keys[0]), dim=1)
    return kept | {
        "facts": np.asarray(facts.cpu().numpy(), np.int32),
        "shown": np.asarray(shown.cpu().numpy(), np.int32),
        "delay": np.array(ops.delay, np.int32),
    }


def tokens_to_show(batch: Batch, vocab_size: int) -> torch.Tensor:
    """All tokens, or of a large vocabulary as many keys as values, the facts' among them; ascending."""
    if vocab_size <= MOST_TOKENS:
        return torch.arange(vocab_size, device=batch.keys.device)
    half = vocab_size // 2
    each = min(half, max(MOST_TOKENS // 2, batch.all_values.numel()))

    def chosen(used: torch.Tensor) -> torch.Tensor:
        of_facts = torch.zeros(half, dtype=torch.bool, device=used.device)
        of_facts[used.flatten() % half] = True
        others = (~of_facts).nonzero()[: each - int(of_facts.sum()), 0]
        return torch.cat((of_facts.nonzero()[:, 0], others)).sort().values

    return torch.cat((chosen(batch.keys), chosen(batch.all_values) + half))
