"""The state as a hash table: what it should hold (H), what it holds (H'), and what that means (H'').

H is a V x V table of ones where facts are. H' is the state as the output sees it, D x N numbers without a
visible pattern. Projected back to tokens on both sides it is H'', V x V again, and close to H; scores say how close.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recallscope.architectures.capabilities import HasOperators, Operators, key_tokens, value_tokens
from recallscope.architectures.model import RecallModel
from recallscope.interp.operators import effective_operators, operators_by_layer
from recallscope.interp.selectivity import MeasuredCodes, measure_codes
from recallscope.interp.states import context_end, facts_at, share, states_at
from recallscope.specs import parse_task
from recallscope.tasks.batch import Batch
from recallscope.tasks.drawing import sample_batch


@dataclass(frozen=True)
class HashTables:
    """The three tables after token t, one per sequence.   Paper: Tab. 4 (`tab:hidden_state_kv_dims`)."""

    ideal: Float[Tensor, "batch V V"]
    """H, rows values, columns keys"""
    hashed: Float[Tensor, "batch D N_all"]
    """H' = P_out h; heads and layers side by side"""
    decoded: Float[Tensor, "batch V V"]
    """H'', rows values, columns queries; at the model's own scale, see `strength`"""
    keys: Int[Tensor, "batch n"]
    """of the facts complete after t"""
    values: Int[Tensor, "batch n"]
    """of the same facts"""


def ideal_table(
    keys: Int[Tensor, "batch n"], values: Int[Tensor, "batch n"], vocab_size: int
) -> Float[Tensor, "batch V V"]:
    """H = Σ_n v_n k_nᵀ.

    Paper: Eq. 12 (`eq:h`).
    Departs: Alg. 2 prints k_nᵀ v_n, which is a number.
    """
    batch, V = len(keys), vocab_size
    table = torch.zeros(batch, V * V, device=keys.device)
    return table.scatter_(1, values * V + keys, 1.0).view(batch, V, V)


def invert_state(parts: Sequence[Operators], state: Float[Tensor, "batch M P N"]) -> Float[Tensor, "batch V WV"]:
    """h_inv = Π_v,out h Π_q,in, heads added up: the answer to every window one could ask with.

    Paper: Alg. 2 (`alg:hidden_state_inversion`).   Holds for: any rotation, any D_conv.
    Departs: it comes out V x 2V, not 2V x V. App. D.4 puts H' between the operators, whose shapes do not meet:
        it is h.
    """
    return _asked(parts, state, lambda part: part.Pi_q_in)


def decoded_table(parts: Sequence[Operators], state: Float[Tensor, "batch M P N"]) -> Float[Tensor, "batch V V"]:
    """H'' = h_inv (0; I_V): the answer to every token one could ask about.

    Paper: Eq. 14 (`eq:h-double-prime`), general form in Alg. 2 (`alg:hidden_state_inversion`).
    Departs: H'' is the right half of h_inv, so (0; I_V) stands to its right; printed to its left.
    """
    return invert_state(parts, state)[..., -parts[0].size :]


def decoded_columns(
    parts: Sequence[Operators], state: Float[Tensor, "batch M P N"], asked: Int[Tensor, "batch n"]
) -> Float[Tensor, "batch V n"]:
    """The columns of H'' for the tokens asked, without the others.   Paper: Eq. 14 (`eq:h-double-prime`)."""
    return _asked(parts, state, lambda part: part.hashed_queries.T[asked].mT)


def _asked(parts: Sequence[Operators], state: Tensor, queries: Callable[[Operators], Tensor]) -> Tensor:
    """What all heads together answer to the queries of each."""
    return torch.stack([read @ queries(part) for part, read in zip(parts, _read_out(parts, state), strict=True)]).sum(0)


def _read_out(parts: Sequence[Operators], state: Tensor) -> list[Tensor]:
    """Π_v,out h of every head; there is one state for all heads where they share values and keys."""
    return [part.Pi_v_out @ h for part, h in zip(parts, state.expand(-1, len(parts), -1, -1).unbind(1), strict=True)]


@torch.no_grad()
def hashed_table(model: RecallModel, states: Sequence[Float[Tensor, "batch M P N"]]) -> Float[Tensor, "batch D N_all"]:
    """H' = P_out h, from the state of every layer; heads and layers stand side by side.

    Paper: Eq. 13 (`eq:h-prime`), as defined in App. D.2 (`app-subsec:ssm-key-value-tables`).
    """
    layers = zip(model.require(HasOperators).operators("stream"), states, strict=True)
    return torch.cat([table for parts, state in layers for table in _read_out(parts, state)], dim=-1)


@torch.no_grad()
def hash_tables(
    model: RecallModel, batch: Batch, t: int | None = None, *, tokens: Int[Tensor, " some"] | None = None
) -> HashTables:
    """H, H' and H'' after token t, or once the last fact is written. H has the facts that could be by then.

    With `tokens`, ascending and all of the facts' among them, only their rows and columns are decoded, and keys and
    values are counted by their places.

    Layers are decoded along their direct path, and added up (see `OperatorModel.operators`).

    Paper: Fig. 3 (`fig:reversing-hidden`), Alg. 2 (`alg:hidden_state_inversion`).
    """
    parts = operators_by_layer(model)
    if tokens is not None:
        parts = tuple(tuple(head.restricted(tokens) for head in heads) for heads in parts)
    delay = max(heads[0].delay for heads in parts)
    t = min(context_end(batch) + delay, batch.tokens.shape[1] - 1) if t is None else t
    states = states_at(model, batch.tokens, t)
    decoded = [decoded_table(heads, state) for heads, state in zip(parts, states, strict=True)]
    keys, values = facts_at(batch, t - delay)
    if tokens is not None:
        keys, values = (torch.searchsorted(tokens, some.contiguous()) for some in (keys, values))
    return HashTables(
        ideal=ideal_table(keys, values, parts[0][0].size),
        hashed=hashed_table(model, states),
        decoded=torch.stack(decoded).sum(dim=0),
        keys=keys,
        values=values,
    )


@dataclass(frozen=True)
class TableScores:
    """H'' against H, averaged over sequences."""

    hit_rate: float
    """share of facts whose value is the largest entry of its key's column"""
    auc: float
    """chance that a fact's entry tops another entry of the whole V x V table"""
    auc_facts: float
    """the same among entries that could be facts, (value, key); ties count half"""
    correlation: float
    """of H'' and H, over the whole table"""
    noise: float
    """root mean square of H''/strength - H over (value, key) entries"""
    predicted_noise: float
    """the same, expected from the variances of the model's own operators"""


def score_tables(tables: HashTables, strength: float, codes: MeasuredCodes) -> TableScores:
    """Every score of `TableScores`; strength and codes are those of the operators the table was decoded with.

    Paper: Fig. 3 (`fig:reversing-hidden`) shows H'' close to H; these numbers say how close.
    """
    H, H2 = tables.ideal, tables.decoded
    V, n = H.shape[-1], tables.keys.shape[1]
    rows, columns = value_tokens(V), key_tokens(V)
    H_facts, H2_facts = H[:, rows, columns], H2[:, rows, columns] / strength
    return TableScores(
        hit_rate=hit_rate(H2, tables.keys, tables.values),
        auc=area_under_curve(H2.flatten(1), H.flatten(1) > 0),
        auc_facts=area_under_curve(H2_facts.flatten(1), H_facts.flatten(1) > 0),
        correlation=_correlation(H2.flatten(1), H.flatten(1)),
        noise=float((H2_facts - H_facts).square().mean().sqrt()),
        predicted_noise=predicted_noise(codes, num_facts=n, vocab_size=V),
    )


def hit_rate(table: Float[Tensor, "batch V V"], keys: Int[Tensor, "batch n"], values: Int[Tensor, "batch n"]) -> float:
    """Share of facts whose value is the largest entry of its key's column."""
    return share(table.argmax(dim=1).gather(1, keys) == values)


def area_under_curve(scores: Float[Tensor, "batch n"], marked: Bool[Tensor, "batch n"]) -> float:
    """Chance that a marked entry tops an unmarked one, ties counting half; the mean over rows."""
    areas = []
    for row, mark in zip(scores, marked, strict=True):
        chosen, others = row[mark].sort().values, row[~mark]
        below = torch.searchsorted(chosen, others, side="left")  # chosen entries below each other one
        up_to = torch.searchsorted(chosen, others, side="right")
        areas.append(1 - (below + up_to).double().mean() / 2 / len(chosen))
    return float(torch.stack(areas).mean())


def predicted_noise(codes: MeasuredCodes, *, num_facts: int, vocab_size: int) -> float:
    """Root mean square of H''/strength - H over (value, key) entries, with n facts stored in a row.

    A fact adds its value's column of G_vv times its key's row of G_kq: 1 in one entry, v_D or v_N where one side
    matches, v_D v_N where none does. The n - 1 (value, key) neighbours between facts add the leak.

    Paper: mean squares as in the proof of Thm F.2 (`eqs-variance`).
    """
    V_k, V_v, n = vocab_size // 2 - 1, vocab_size // 2, num_facts
    column, row = 1 + (V_v - 1) * codes.value_variance, 1 + (V_k - 1) * codes.key_variance
    of_facts = n * (column * row - 1) / (V_v * V_k)
    return float((of_facts + (n - 1) * codes.leak) ** 0.5)


def _correlation(a: Float[Tensor, "batch n"], b: Float[Tensor, "batch n"]) -> float:
    a, b = (v.double() - v.double().mean(dim=1, keepdim=True) for v in (a, b))
    return float(((a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))).mean())


@dataclass(frozen=True)
class FillCurve:
    """How recall fades as the table fills."""

    num_facts: tuple[int, ...]
    hit_rate: tuple[float, ...]
    """measured: fraction of facts decoded correctly, right after the last write"""
    predicted: tuple[float, ...]
    """by the law, from the variances of the model's own operators"""


@torch.no_grad()
def fill_curve(
    model: RecallModel, counts: Sequence[int], *, num_sequences: int, generator: torch.Generator
) -> FillCurve:
    """Write n facts, decode all of them, for every n of `counts`: how full is the table?

    Paper: Thm 4.2 (`thm:prob-scaling-law`) asks at which n recall fails; Fig. 3 (`fig:reversing-hidden`) decodes.
    """
    V = model.vocab_size
    if not counts or not all(1 <= n <= V // 2 - 1 for n in counts):
        raise ValueError(
            f"counts={list(counts)}: a table over vocab_size={V} holds 1 to {V // 2 - 1} facts, as keys are distinct "
            f"(tokens 1..V/2-1). Use 1 <= n <= {V // 2 - 1}."
        )
    ops = effective_operators(model)
    codes, parts = measure_codes(ops), operators_by_layer(model)
    rates = []
    for n in counts:
        task = parse_task({"kind": "ar", "vocab_size": V, "num_facts": n})
        batch = sample_batch(task, num_sequences, generator)
        states = states_at(model, batch.tokens, min(context_end(batch) + ops.delay, 2 * n))
        columns = [decoded_columns(heads, state, batch.keys) for heads, state in zip(parts, states, strict=True)]
        best = torch.stack(columns).sum(dim=0).argmax(dim=1)
        rates.append(share(best == batch.values))
    predicted = codes.recall(vocab_size=V, num_facts=list(counts), task="ar")
    return FillCurve(tuple(counts), tuple(rates), tuple(float(p) for p in predicted))
