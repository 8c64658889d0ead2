"""Causal checks: change the state, and see whether the answers follow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recallscope.architectures.layered import LayeredModel
from recallscope.interp.edits import answer_edited, fact_writes
from recallscope.interp.operators import Operators, token_operators
from recallscope.interp.states import context_end, facts_at, states_at
from recallscope.interp.vocabulary import key_tokens, value_tokens
from recallscope.tasks import Batch


@dataclass(frozen=True)
class OverwriteScores:
    """One fact of each sequence given another value, in the state, after the context."""

    success: float
    """share of trials in which the query for that key is now answered with the new value"""
    others_changed: float
    """share of the other queries whose answer is not what it was"""
    others_changed_control: float
    """the same if the new value stands in the sequence from the start, instead of surgery: chance"""
    others_accuracy: float
    """accuracy of the other queries after surgery"""
    others_accuracy_before: float
    """and without"""
    erased: float
    """share of trials in which a fact only taken out is no longer answered"""
    trials: int


@torch.no_grad()
def overwrite_facts(model: LayeredModel, batch: Batch, generator: torch.Generator) -> OverwriteScores:
    """Subtract v'_old k'ᵀ, add v'_new k'ᵀ, for one random fact per sequence; then go on reading.

    Paper: App. D.3 (`app-subsec:hidden-as-hash`): a fact is stored as encode(v) hash(k)ᵀ. If so, this must work.
    """
    t = context_end(batch)
    keys, old = facts_at(batch, t)
    trials, n = keys.shape
    V, device = model.vocab_size, generator.device
    rows = torch.arange(trials, device=device)
    which = torch.randint(n, (trials,), generator=generator, device=device)
    key, was = keys[rows, which], old[rows, which]
    new = unused_values(old, V, generator)

    parts = [token_operators(model, layer=l) for l in range(len(model.layers))]
    minus = [-fact_writes(heads, key, was) for heads in parts]
    plus = [fact_writes(heads, key, new) for heads in parts]
    positions = batch.query_positions
    asked = batch.tokens.gather(1, positions)
    mine = asked == key[:, None]

    def said(edits: list[Tensor]) -> Int[Tensor, "batch Q"]:
        return answer_edited(model, batch.tokens, positions, edits, after=t).argmax(dim=-1)

    before = model.answer(batch.tokens, positions).argmax(dim=-1)
    after = said([a + b for a, b in zip(minus, plus, strict=True)])
    erased = said(minus)
    rewritten = batch.tokens.clone()
    rewritten[rows, t - 2 * (n - 1 - which)] = new
    control = model.answer(rewritten, positions).argmax(dim=-1)
    right = before == batch.answers
    return OverwriteScores(
        success=share((after == new[:, None])[mine]),
        others_changed=share((after != before)[~mine]),
        others_changed_control=share((control != before)[~mine]),
        others_accuracy=share((after == batch.answers)[~mine]),
        others_accuracy_before=share(right[~mine]),
        erased=share((erased != was[:, None])[mine]),
        trials=trials,
    )


def unused_values(used: Int[Tensor, "batch n"], V: int, generator: torch.Generator) -> Int[Tensor, " batch"]:
    """For each row a value token that is not in it."""
    chance = torch.rand(len(used), V // 2, generator=generator, device=generator.device)
    return chance.scatter(1, used - V // 2, -1.0).argmax(dim=1) + V // 2


def share(flags: Bool[Tensor, " n"]) -> float:
    """How many are true, out of all."""
    return float(flags.double().mean())


@dataclass(frozen=True)
class ProjectionScores:
    """The state after the context, split into the span of its facts and the rest."""

    facts_only: float
    """accuracy with everything but the facts taken out of the state"""
    without_facts: float
    """accuracy with the facts taken out"""
    energy: float
    """share of the squared norm of H'' (values by keys) that the facts account for"""


@torch.no_grad()
def project_on_facts(model: LayeredModel, batch: Batch) -> ProjectionScores:
    """Keep only Σ_n c_n v'_n k'_nᵀ, or keep only the rest; the c_n are least squares in the decoded table.

    Paper: Eq. 13 (`eq:h-prime`) says that the table is the sum over its facts.
    """
    t = context_end(batch)
    keys, values = facts_at(batch, t)
    count, n = keys.shape
    kept, rest, shares = [], [], []
    for l, state in enumerate(states_at(model, batch.tokens, t)):
        heads = token_operators(model, layer=l)
        writes = fact_writes(heads, keys.flatten(), values.flatten())[:, : state.shape[1]]
        in_table = _table_coordinates(heads)
        basis = in_table(writes).unflatten(0, (count, n)).mT  # batch, entries, facts
        coefficients = torch.linalg.lstsq(basis, in_table(state)[..., None]).solution[..., 0]
        facts = (writes.unflatten(0, (count, n)) * coefficients[..., None, None, None]).sum(dim=1)
        kept.append(facts - state)
        rest.append(-facts)
        shares.append(float(in_table(facts).square().sum() / in_table(state).square().sum()))
    positions = batch.query_positions
    return ProjectionScores(
        facts_only=_accuracy(answer_edited(model, batch.tokens, positions, kept, after=t), batch),
        without_facts=_accuracy(answer_edited(model, batch.tokens, positions, rest, after=t), batch),
        energy=sum(shares) / len(shares),
    )


def _table_coordinates(heads: Sequence[Operators]) -> Callable[[Tensor], Tensor]:
    """From a state to its decoded table (values by keys), up to a rotation: lengths and angles are the table's.

    Distances between states themselves would depend on the rotation of the model.
    """
    v, k = value_tokens(heads[0].size), key_tokens(heads[0].size)
    outs, queries = [head.Pi_v_out[v] for head in heads], [head.hashed_queries[:, k].T for head in heads]
    _, R_out = torch.linalg.qr(torch.cat(outs, dim=1))
    _, R_q = torch.linalg.qr(torch.cat(queries, dim=1))
    R_outs, R_qs = (R.split([part.shape[1] for part in parts], dim=1) for R, parts in ((R_out, outs), (R_q, queries)))

    def coordinates(state: Float[Tensor, "batch M P N"]) -> Float[Tensor, "batch entries"]:
        each = state.expand(-1, len(heads), -1, -1)
        return sum(R_outs[h] @ each[:, h] @ R_qs[h].T for h in range(len(heads))).flatten(1)

    return coordinates


def _accuracy(logits: Float[Tensor, "batch Q V"], batch: Batch) -> float:
    return share((logits.argmax(dim=-1) == batch.answers).flatten())
