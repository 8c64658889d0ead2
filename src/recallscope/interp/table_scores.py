"""How well a decoded table H'' tells the facts: hits, ranks, correlation, and noise beside what is predicted."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recallscope.architectures.model import RecallModel
from recallscope.architectures.operators import key_tokens, value_tokens
from recallscope.interp.hash_table import HashTables, decoded_columns
from recallscope.interp.operators import effective_operators, operators_by_layer
from recallscope.interp.selectivity import MeasuredCodes, measure_codes
from recallscope.interp.states import context_end, states_at
from recallscope.specs import TaskSpec
from recallscope.tasks import draw_batch
from recallscope.theory.laws.sharing import recall_given_variances


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
    best = table.argmax(dim=1).gather(1, keys)
    return float((best == values).double().mean())


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
    """measured: facts decoded rightly, right after the last was written"""
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
        task = TaskSpec.model_validate({"kind": "ar", "vocab_size": V, "num_facts": n})
        batch = draw_batch(task, num_sequences, generator)
        states = states_at(model, batch.tokens, min(context_end(batch) + ops.delay, 2 * n))
        columns = [decoded_columns(heads, state, batch.keys) for heads, state in zip(parts, states, strict=True)]
        best = torch.stack(columns).sum(dim=0).argmax(dim=1)
        rates.append(float((best == batch.values).double().mean()))
    predicted = recall_given_variances(
        key_variance=codes.key_variance,
        value_variance=codes.value_variance,
        leak=codes.leak,
        vocab_size=V,
        num_facts=list(counts),
        task="ar",
    )
    return FillCurve(tuple(counts), tuple(rates), tuple(float(p) for p in predicted))
