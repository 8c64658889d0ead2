"""What models read and probes inspect: tokens, the questions asked of them, and the facts they state."""

import dataclasses

import torch
from jaxtyping import Int
from torch import Tensor

NOTHING_ASKED = -100  # torch's ignore_index: positions without a question


@dataclasses.dataclass(frozen=True, eq=False)
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
