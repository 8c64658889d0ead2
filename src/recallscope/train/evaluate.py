"""Accuracy of any RecallModel, designed or trained, on fresh sequences of a task."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.models import RecallModel
from recallscope.specs import TaskSpec
from recallscope.tasks import Score, draw_batch
from recallscope.tasks.scoring import accuracy, answered

TOKENS_AT_ONCE = 2**15
LOGITS_AT_ONCE = 2**20


@torch.no_grad()
def evaluate(model: RecallModel, task: TaskSpec, num_sequences: int, generator: torch.Generator) -> Score:
    """Share of queries whose answer has the largest logit, over `num_sequences` drawn from `generator`.

    A generator in the same state draws the same set: a fixed validation set needs no memory.
    """
    rows = max(1, TOKENS_AT_ONCE // task.length)
    right = []
    for start in range(0, num_sequences, rows):
        batch = draw_batch(task, min(rows, num_sequences - start), generator)
        said = best_tokens(model.hidden_at(batch.tokens, batch.query_positions), model.head)
        right.append(answered(said, batch))
    return accuracy(torch.cat(right))


def best_tokens(y: Float[Tensor, "batch Q D"], E: Float[Tensor, "D V"]) -> Int[Tensor, "batch Q"]:
    """argmax of Eᵀ y, a chunk of queries at a time."""
    rows = max(1, LOGITS_AT_ONCE // E.shape[1])
    return torch.cat([(part @ E).argmax(dim=-1) for part in y.flatten(0, 1).split(rows)]).view(y.shape[:2])
