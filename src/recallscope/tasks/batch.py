"""What models read: tokens, the queries, the facts; and the fraction of queries answered correctly, with its error."""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

NOTHING_ASKED = -100  # torch's ignore_index: positions without a question


@dataclass(frozen=True, eq=False)
class Batch:
    """Sequences of one task, with their questions and answers.

    Paper: Sec. 2 (`par:mqar-definition`), Tab. 1 (`tab:mqar_notation`); repeated keys App. I.2
    (`app-subsec:repeated-keys-queries`).

    The answer stands at the position of its query and is never fed in. Q is N_f, or 1 for AR.
    """

    tokens: Int[Tensor, "batch L"]
    query_positions: Int[Tensor, "batch Q"]  # ascending within a row
    answers: Int[Tensor, "batch Q"]  # column q belongs to query_positions[:, q]
    keys: Int[Tensor, "batch N_f *m"]  # in the order of the context; with an axis more for keys of m tokens
    all_values: Int[Tensor, "batch N_k N_f"]  # every value a key is given, first to last

    @property
    def values(self) -> Int[Tensor, "batch N_f"]:
        """The values in force: where a key is written more than once, the last one it is given."""
        return self.all_values[:, -1]

    @property
    def targets(self) -> Int[Tensor, "batch L"]:
        """The answer at every query position, -100 elsewhere."""
        nothing = torch.full_like(self.tokens, NOTHING_ASKED)
        return nothing.scatter_(1, self.query_positions, self.answers)

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        fields = (field.name for field in dataclasses.fields(self))
        return Batch(**{name: getattr(self, name).to(device) for name in fields})

    def split(self, rows: int) -> list["Batch"]:
        """The batch in parts of at most so many sequences."""
        if rows >= len(self):
            return [self]
        names = [field.name for field in dataclasses.fields(self)]
        parts = zip(*(getattr(self, name).split(rows) for name in names), strict=True)
        return [Batch(*part) for part in parts]

    def __len__(self) -> int:
        """How many sequences."""
        return len(self.tokens)


@dataclass(frozen=True)
class Score:
    """Share of queries answered rightly, with its sampling error."""

    accuracy: float
    standard_error: float  # nan for a single sequence, which says nothing about how sequences differ
    queries: int
    in_context: float | None = None  # fraction of answers that are the value of some fact of the context
    top_k: Mapping[int, float] | None = None  # by k: fraction of queries whose answer is among the k largest logits
    warning: str = ""  # that this is not above guessing, and so says nothing about what the model can hold


def score(output: Float[Tensor, "batch positions V"] | Int[Tensor, "batch positions"], batch: Batch) -> Score:
    """Score logits or predicted tokens, given at the query positions or at every position."""
    return accuracy(answered(output, batch))


def answered(
    output: Float[Tensor, "batch positions V"] | Int[Tensor, "batch positions"], batch: Batch
) -> Bool[Tensor, "batch Q"]:
    """Which queries are answered rightly: the predicted token, or the largest logit, is the answer.

    Paper: Sec. 2 (`par:mqar-definition`).

    A query with a logit that is not a number counts as wrong. Results of several batches can be concatenated
    along `batch` before `accuracy` counts them.
    """
    count, Q, L = len(batch), batch.answers.shape[1], batch.tokens.shape[1]
    if output.shape[0] != count or output.shape[1] not in (Q, L):
        raise ValueError(
            f"output covers {output.shape[0]} sequences at {output.shape[1]} positions, the batch has "
            f"{count} sequences of {L} tokens with {Q} queries each. Give output at the queries, "
            f"({count}, {Q}, ...), or at every position, ({count}, {L}, ...)."
        )
    if output.shape[1] == L:  # Q < L always: a context comes before the queries
        index = batch.query_positions
        output = output.take_along_dim(index if output.ndim == 2 else index[:, :, None], dim=1)
    if output.ndim == 2:
        return output == batch.answers
    largest, predicted = output.max(dim=-1)
    return (predicted == batch.answers) & ~largest.isnan()


def rank(logits: Float[Tensor, "batch Q V"], batch: Batch) -> Int[Tensor, "batch Q"]:
    """How many tokens have a logit as large as the answer's, or larger, or none that is a number."""
    own = logits.gather(2, batch.answers[:, :, None])
    return (~(logits < own)).sum(dim=2) - 1


def named(predicted: Int[Tensor, "batch Q"], batch: Batch) -> Bool[Tensor, "batch Q"]:
    """Which answers are the value of some fact of the context, right or not."""
    return (predicted[:, :, None] == batch.values[:, None, :]).any(dim=2)


def accuracy(right: Bool[Tensor, "batch Q"], in_context: float | None = None) -> Score:
    """Mean over all queries. Those of one sequence share its facts and filler, so they err together.

    The standard error therefore treats sequences, not queries, as independent: the standard deviation of the
    sequences' means over the square root of their number. It is 0 where all score alike, as at accuracy 1.
    """
    n, Q = right.shape
    means = right.double().mean(dim=1)
    spread = float(means.std()) if n > 1 else math.nan
    return Score(int(right.sum()) / (n * Q), spread / math.sqrt(n), n * Q, in_context)
