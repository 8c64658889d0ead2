"""Causal checks: change the state, or cut blocks out of the operators, and see whether the answers follow."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recallscope.architectures.capabilities import HasOperators, Operators, WritesFacts, key_tokens, value_tokens
from recallscope.architectures.model import RecallModel
from recallscope.interp.operators import operators_by_layer
from recallscope.interp.states import context_end, facts_at, share, states_at
from recallscope.tasks.batch import Batch, answered


def fact_writes(
    model: RecallModel, keys: Int[Tensor, " n"], values: Int[Tensor, " n"]
) -> tuple[Float[Tensor, "n M P N"], ...]:
    """What each fact leaves in the state of every layer: v' k'ᵀ, as it is written.

    Paper: Eq. 13 (`eq:h-prime`); App. D.3 (`app-subsec:hidden-as-hash`).
    """
    return tuple(codes.writes(keys, values) for codes in model.require(WritesFacts).fact_codes())


@dataclass(frozen=True)
class OverwriteScores:
    """One fact of each sequence given another value, in the state, after the context."""

    success: float
    """share of trials in which the query for that key is now answered with the new value"""
    others_changed: float
    """share of the other queries whose answer is not what it was"""
    others_changed_control: float
    """the same if the sequence has the new value from the start and the state is not patched: chance"""
    others_accuracy: float
    """accuracy of the other queries after it"""
    others_accuracy_before: float
    """and without"""
    erased: float
    """share of trials in which a fact only taken out is no longer answered"""
    own_write: float | None
    """success if the model's own writes are exchanged, not v' k'ᵀ; None where a write depends on more than the pair"""
    factored_energy: float | None
    """share of the squared norm of the model's writes that v' k'ᵀ explains; None where it is v' k'ᵀ by its weights"""
    trials: int

    @property
    def factored_write(self) -> float:
        """`success`, by the name it has beside `own_write`."""
        return self.success


@torch.no_grad()
def overwrite_facts(model: RecallModel, batch: Batch, generator: torch.Generator) -> OverwriteScores:
    """Subtract v'_old k'ᵀ, add v'_new k'ᵀ, for one random fact per sequence, faded as it fades; then read on.

    Where a write is not v' k'ᵀ by construction, v' and k' are averages over what the model does. If that works as well
    as exchanging the model's own writes, the hash table is there in spite of the nonlinearities.

    Paper: App. D.3 (`app-subsec:hidden-as-hash`): a fact is stored as encode(v) hash(k)ᵀ. If so, this must work.
    """
    able, t = model.require(WritesFacts), context_end(batch)
    keys, old = facts_at(batch, t)
    trials, n = keys.shape
    rows = torch.arange(trials, device=keys.device)
    which = torch.randint(n, (trials,), generator=generator, device=generator.device)
    key, was = keys[rows, which], old[rows, which]
    new = unused_values(old, model.vocab_size, generator)
    written_at = t - 2 * (n - 1 - which)
    positions = batch.query_positions

    def answers_with(*exchanged: tuple[Tensor, ...]) -> Int[Tensor, "batch Q"]:
        """Answers after all of these were added to the states, each as faded as if written with the fact."""
        total = tuple(torch.stack(layer).sum(dim=0) for layer in zip(*exchanged, strict=True))
        return able.answer_edited(batch.tokens, positions, total, after=t, since=written_at).argmax(dim=-1)

    codes = able.fact_codes()
    minus = tuple(-layer.writes(key, was) for layer in codes)
    plus = tuple(layer.writes(key, new) for layer in codes)
    before = model.answer(batch.tokens, positions).argmax(dim=-1)
    after, erased = answers_with(minus, plus), answers_with(minus)
    own_new, own_was = able.pair_writes(key, new), able.pair_writes(key, was)
    after_own = answers_with(tuple(-write for write in own_was), own_new) if own_was and own_new else None
    rewritten = batch.tokens.clone()
    rewritten[rows, written_at] = new
    control = model.answer(rewritten, positions).argmax(dim=-1)
    mine = batch.tokens.gather(1, positions) == key[:, None]
    explained = [layer.explained for layer in codes if layer.explained is not None]
    return OverwriteScores(
        success=share((after == new[:, None])[mine]),
        others_changed=share((after != before)[~mine]),
        others_changed_control=share((control != before)[~mine]),
        others_accuracy=share((after == batch.answers)[~mine]),
        others_accuracy_before=share((before == batch.answers)[~mine]),
        erased=share((erased != was[:, None])[mine]),
        own_write=None if after_own is None else share((after_own == new[:, None])[mine]),
        factored_energy=sum(explained) / len(explained) if explained else None,
        trials=trials,
    )


def unused_values(used: Int[Tensor, "batch n"], V: int, generator: torch.Generator) -> Int[Tensor, " batch"]:
    """For each row a value token that is not in it."""
    chance = torch.rand(len(used), V // 2, generator=generator, device=generator.device)
    return chance.scatter(1, used - V // 2, -1.0).argmax(dim=1) + V // 2


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
def project_on_facts(model: RecallModel, batch: Batch) -> ProjectionScores:
    """Keep only Σ_n c_n v'_n k'_nᵀ, or keep only the rest; the c_n are least squares in the decoded table.

    Paper: Eq. 13 (`eq:h-prime`) says that the table is the sum over its facts.
    """
    able, t = model.require(WritesFacts), context_end(batch)
    keys, values = facts_at(batch, t)
    count, n = keys.shape
    kept, rest, shares = [], [], []
    states, all_writes = states_at(model, batch.tokens, t), fact_writes(model, keys.flatten(), values.flatten())
    for heads, state, written in zip(operators_by_layer(model), states, all_writes, strict=True):
        writes = written[:, : state.shape[1]]
        in_table = _table_coordinates(heads)
        basis = in_table(writes).unflatten(0, (count, n)).mT  # batch, entries, facts
        coefficients = torch.linalg.lstsq(basis, in_table(state)[..., None]).solution[..., 0]
        facts = (writes.unflatten(0, (count, n)) * coefficients[..., None, None, None]).sum(dim=1)
        kept.append(facts - state)
        rest.append(-facts)
        shares.append(float(in_table(facts).square().sum() / in_table(state).square().sum()))

    def recall(edits: list[Tensor]) -> float:
        logits = able.answer_edited(batch.tokens, batch.query_positions, tuple(edits), after=t)
        return share(answered(logits, batch))

    return ProjectionScores(recall(kept), recall(rest), energy=sum(shares) / len(shares))


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


@torch.no_grad()
def answer_ablated(
    model: RecallModel,
    tokens: Int[Tensor, "batch L"],
    positions: Int[Tensor, "batch Q"],
    *,
    value_blocks: Bool[Tensor, " W"],
    match_blocks: Bool[Tensor, "W W"],
) -> Float[Tensor, "batch Q V"]:
    """Logits at the positions with only the given blocks of G_vv and G_kq, all others set to 0.

    Paper: Eq. 10 with the blocks of Eq. 11 (`eq:Gvv-Gkq`).   Holds for: models of one layer.
    """
    able, layers = model.require(HasOperators), operators_by_layer(model)
    if len(layers) != 1:
        raise ValueError(
            f"the model has {len(layers)} layers, and Eq. 10 writes one as G_vv and G_kq. Use num_layers=1."
        )
    V, (count, L) = model.vocab_size, tokens.shape
    past = torch.arange(L, device=tokens.device) <= positions[..., None]
    logits = layers[0][0].Pi_v_in.new_zeros(*positions.shape, V)
    for head in layers[0]:
        W = head.conv_width
        alpha = logits.new_zeros(count, positions.shape[1], L)
        for i, j in match_blocks.nonzero().tolist():
            k, seen = _tap(head.Pi_k_in, tokens, W, i, V)
            q, asks = _tap(head.Pi_q_in, tokens, W, j, V)
            q_at = (q * asks[..., None]).gather(1, positions[..., None].expand(-1, -1, q.shape[-1]))
            alpha += einsum(q_at, k * seen[..., None], "batch Q N, batch tau N -> batch Q tau")
        alpha = alpha * past
        for i in value_blocks.nonzero().flatten().tolist():
            v, seen = _tap(head.Pi_v_in, tokens, W, i, V)
            logits += einsum(alpha, v * seen[..., None], "batch Q tau, batch tau P -> batch Q P") @ head.Pi_v_out.T
    if able.residual:
        logits += able.unembed(able.embed(tokens.gather(1, positions)))
    return logits


def _tap(pi: Tensor, tokens: Tensor, W: int, tap: int, V: int) -> tuple[Tensor, Tensor]:
    """Columns of one block for the token that stands there in each window, and whether there is one."""
    lag = W - 1 - tap
    there = torch.arange(tokens.shape[1], device=tokens.device) >= lag
    shifted = tokens.roll(lag, dims=1)
    return pi.T[tap * V : (tap + 1) * V][shifted], there.expand(tokens.shape)


@dataclass(frozen=True)
class AblationScores:
    """Accuracy with parts of the operators cut out."""

    circuit_only: float
    """only the predicted blocks are kept"""
    without_value_block: float
    """all but the predicted block of G_vv"""
    without_match_block: float
    """all but the predicted block of G_kq"""


def ablate_blocks(model: RecallModel, batch: Batch) -> AblationScores:
    """Cut blocks out of G_vv and G_kq: the predicted ones must suffice, and be needed.

    Paper: Eq. 11 (`eq:Gvv-Gkq`).   Holds for: models of one layer with windows of two tokens or more.
    """
    ops = operators_by_layer(model)[0][0]
    W = ops.conv_width
    if W < 2:
        raise ValueError(
            "conv_width=1: no window holds a key and its value, so G_kq has no predicted block (Tab. 8, ablation E). "
            "Use conv_width >= 2."
        )
    value = torch.zeros(W, dtype=torch.bool, device=batch.tokens.device)
    match = torch.zeros(W, W, dtype=torch.bool, device=batch.tokens.device)
    value[-1 - ops.delay] = match[-2 - ops.delay, -1] = True

    def accuracy(value_blocks: Tensor, match_blocks: Tensor) -> float:
        logits = answer_ablated(
            model, batch.tokens, batch.query_positions, value_blocks=value_blocks, match_blocks=match_blocks
        )
        return share(logits.argmax(dim=-1) == batch.answers)

    every_value, every_match = torch.ones_like(value), torch.ones_like(match)
    return AblationScores(accuracy(value, match), accuracy(~value, every_match), accuracy(every_value, ~match))
