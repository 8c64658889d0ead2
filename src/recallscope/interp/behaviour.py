"""What can be told of any model from its answers alone: how often it is right, on which facts, and how it errs."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from recallscope.architectures.model import RecallModel
from recallscope.interp.states import asked_facts
from recallscope.tasks import Batch, accuracy

LOGITS_AT_ONCE = 2**24
MOST_GROUPS = 16  # of facts, by their place in the context


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
    said, lead = _answers(model, batch)
    right = said == batch.answers
    fact, known = asked_facts(batch)
    values = batch.all_values
    earlier = values[:, :-1].gather(2, fact[:, None].expand(-1, values.shape[1] - 1, -1))
    old = (earlier == said[:, None]).any(dim=1) & known & ~right
    stored = (values.flatten(1)[:, None] == said[..., None]).any(dim=-1) & ~right & ~old
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
    said, lead = [], []
    for part in batch.split(rows):
        logits = model.answer(part.tokens, part.query_positions)
        answers = part.answers[..., None]
        others = logits.scatter(2, answers, -torch.inf)
        said.append(logits.argmax(dim=-1))
        lead.append((logits.gather(2, answers)[..., 0] - others.amax(dim=-1)).double())
    model.train(training)
    return torch.cat(said), torch.cat(lead)


def _by_place(right: Bool[Tensor, " n"], place: Tensor, num_facts: int) -> tuple[float, ...]:
    """Share of right answers in groups of neighbouring facts; NaN where a group is not asked."""
    groups = min(num_facts, MOST_GROUPS)
    group = place * groups // num_facts
    hits = torch.zeros(groups, dtype=torch.float64, device=place.device).index_add(0, group, right.double())
    asked = torch.bincount(group, minlength=groups)
    return tuple((hits / asked).tolist())
