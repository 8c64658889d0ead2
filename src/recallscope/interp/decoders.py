"""What can be told without operators: a model's answers, a linear probe of its state, and where its keys answer.

The answers need nothing of a model but themselves. The other two also show the circuit once gate, SiLU, Δ and decay
are in the way.
"""

from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import one_hot, pad

from recallscope.architectures.capabilities import HasKeys
from recallscope.architectures.model import RecallModel
from recallscope.interp.states import asked_facts, at_queries, context_end, earlier_tokens, facts_at, share, states_at
from recallscope.tasks.batch import Batch, accuracy

LOGITS_AT_ONCE = 2**24
MOST_GROUPS = 16  # of facts, by their place in the context
PREVIOUS_TOKENS = 16  # draws over which the query code of a key is averaged


@torch.no_grad()
def query_codes(model: RecallModel, generator: torch.Generator, *, layer: int = -1) -> Float[Tensor, "V M N"]:
    """C of every token as a query, averaged over what may stand before it."""
    V, n = model.vocab_size, PREVIOUS_TOKENS
    before = torch.randint(V, (V * n,), generator=generator, device=generator.device)
    asked = torch.arange(V, device=generator.device).repeat_interleave(n)
    _, C = model.require(HasKeys).keys_and_queries(torch.stack((before, asked), dim=1), layer)
    return C[:, -1].unflatten(0, (V, n)).mean(dim=1)


@dataclass(frozen=True)
class ProbeScores:
    """A linear map from the state, read with a key's own code, to the value stored under it."""

    accuracy: float
    """facts whose value the probe names, on fresh sequences"""
    control: float
    """the same probe, trained and tested with the keys of each sequence shuffled"""


@torch.no_grad()
def probe_facts(
    model: RecallModel, train: Batch, test: Batch, generator: torch.Generator, *, ridge: float = 1e-3
) -> ProbeScores:
    """Ridge regression from h c_k to the one-hot value of key k, after the context; c_k is k's mean query code.

    Paper: Fig. 3 (`fig:reversing-hidden`), with a fitted map where a model has no fixed one.
    Holds for: any model that shows its state and its queries.
    """
    codes = query_codes(model, generator)

    def features(batch: Batch, shuffled: bool) -> tuple[Tensor, Tensor]:
        t = context_end(batch)
        keys, values = facts_at(batch, t)
        if shuffled:
            order = torch.rand(keys.shape, generator=generator, device=generator.device).argsort(dim=1)
            keys = keys.gather(1, order)
        state = states_at(model, batch.tokens, t)[-1]
        M = max(state.shape[1], codes.shape[1])
        state, code = state.expand(-1, M, -1, -1), codes.expand(-1, M, -1)[keys]
        read = einsum(state, code, "batch M P N, batch n M N -> batch n M P").flatten(2).flatten(0, 1)
        return pad(read.double(), (0, 1), value=1.0), values.flatten()

    def accuracy(shuffled: bool) -> float:
        X, labels = features(train, shuffled)
        Y = one_hot(labels, model.vocab_size).to(X)
        penalty = ridge * X.square().mean() * len(X) * torch.eye(X.shape[1], dtype=X.dtype, device=X.device)
        W = torch.linalg.solve(X.T @ X + penalty, X.T @ Y)
        X_new, wanted = features(test, shuffled)
        return share((X_new @ W).argmax(dim=1) == wanted)

    return ProbeScores(accuracy=accuracy(False), control=accuracy(True))


@dataclass(frozen=True)
class ShiftScores:
    """B_τ · C_t at queries t, in standard deviations of unrelated places."""

    shifted: float
    """where x_{τ-1} is the token asked for: large, if keys answer one place later"""
    unshifted: float
    """where x_τ itself is: small, if they do not answer in place"""


@torch.no_grad()
def shift_test(model: RecallModel, batch: Batch, *, layer: int = -1) -> ShiftScores:
    """Does a key answer at the place after it? From keys and queries as the model computes them, decay aside.

    Paper: Fig. 15 (`fig:reversing-conv`), for models without G_kq.   Holds for: any model that shows them.
    """
    B, C = model.require(HasKeys).keys_and_queries(batch.tokens, layer)
    alpha = einsum(B, C, "batch tau M N, batch t M N -> batch tau t").double()
    t = batch.query_positions
    found, asked = at_queries(alpha, batch), batch.tokens.gather(1, t)
    shifted = earlier_tokens(batch.tokens, 1)[:, :, None] == asked[:, None]
    unshifted = (batch.tokens[:, :, None] == asked[:, None]) & ~shifted
    past = torch.arange(alpha.shape[1], device=t.device)[:, None] < t[:, None]
    rest = found[past & ~shifted & ~unshifted]
    return ShiftScores(*(float((found[past & w].mean() - rest.mean()) / rest.std()) for w in (shifted, unshifted)))


@dataclass(frozen=True)
class Behaviour:
    """Answers of a model, seen from outside."""

    accuracy: float
    """share of queries answered rightly"""
    standard_error: float
    queries: int
    recall_by_place: tuple[float, ...]
    """the same by the fact's place in the context, oldest first; neighbours are pooled into 16 groups at most"""
    wrong_other_value: float
    """of the wrong answers, those that are the value of another fact"""
    wrong_old_value: float
    """those that are an earlier value of the same key"""
    wrong_else: float
    """all others: values that the context does not have, keys, filler"""
    margin: float
    """mean lead of the right answer's logit over the largest other one"""
    low_margin: float
    """the lead that a tenth of the queries do not reach"""


@torch.no_grad()
def measure_behaviour(model: RecallModel, batch: Batch) -> Behaviour:
    """Ask every question of the batch, and count.   Holds for: any model.

    Paper: Sec. 2 (`par:mqar-definition`).
    """
    output, lead = _answers(model, batch)
    right = output == batch.answers
    fact, known = asked_facts(batch)
    values = batch.all_values
    earlier = values[:, :-1].gather(2, fact[:, None].expand(-1, values.shape[1] - 1, -1))
    old = (earlier == output[:, None]).any(dim=1) & known & ~right
    stored = (values.flatten(1)[:, None] == output[..., None]).any(dim=-1) & ~right & ~old
    wrong = int((~right).sum())

    def of_wrong(flags: Bool[Tensor, "batch Q"]) -> float:
        return int(flags.sum()) / wrong if wrong else float("nan")

    score = accuracy(right)
    return Behaviour(
        accuracy=score.accuracy,
        standard_error=score.standard_error,
        queries=score.queries,
        recall_by_place=_by_place(right[known], fact[known], batch.keys.shape[1]),
        wrong_other_value=of_wrong(stored),
        wrong_old_value=of_wrong(old),
        wrong_else=of_wrong(~right & ~old & ~stored),
        margin=float(lead.mean()),
        low_margin=float(lead.flatten().quantile(0.1)),
    )


def _answers(model: RecallModel, batch: Batch) -> tuple[Tensor, Float[Tensor, "batch Q"]]:
    """The token with the largest logit at every query, and the lead of the right one; some sequences at a time."""
    rows = max(1, LOGITS_AT_ONCE // (batch.tokens.shape[1] * model.vocab_size))
    training = model.training
    model.eval()
    output, lead = [], []
    for part in batch.split(rows):
        logits = model.answer(part.tokens, part.query_positions)
        answers = part.answers[..., None]
        others = logits.scatter(2, answers, -torch.inf)
        output.append(logits.argmax(dim=-1))
        lead.append((logits.gather(2, answers)[..., 0] - others.amax(dim=-1)).double())
    model.train(training)
    return torch.cat(output), torch.cat(lead)


def _by_place(right: Bool[Tensor, " n"], place: Tensor, num_facts: int) -> tuple[float, ...]:
    """Share of right answers in groups of neighbouring facts; NaN where a group is not asked."""
    groups = min(num_facts, MOST_GROUPS)
    group = place * groups // num_facts
    hits = torch.zeros(groups, dtype=torch.float64, device=place.device).index_add(0, group, right.double())
    asked = torch.bincount(group, minlength=groups)
    return tuple((hits / asked).tolist())
