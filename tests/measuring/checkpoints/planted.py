"""Models whose recall is known: they look the answer up among the tokens that they have seen."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn


class Planted(nn.Module):
    """Knows the last `span` facts of lines `key : value`; asked for others, it says the value of the newest fact.

    Its cache has two layers: the tokens seen, and numbers that nobody reads. With `forgets_rows`, a copy of the cache
    is no use: it answers from the first sequence that it ever read.
    """

    def __init__(self, vocab_size: int, span: int, *, positions: int | None = None, forgets_rows: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.config = SimpleNamespace(vocab_size=vocab_size, hidden_size=8, max_position_embeddings=positions)
        self.span, self.forgets_rows = span, forgets_rows

    def forward(
        self, input_ids: Tensor, past_key_values: Any = None, use_cache: bool = True, logits_to_keep: int = 0
    ) -> SimpleNamespace:
        seen = input_ids
        if past_key_values is not None:
            before = past_key_values[0]["seen"]
            before = before[:1].expand_as(before) if self.forgets_rows else before
            seen = torch.cat((before, input_ids), dim=1)
        logits = torch.zeros(len(seen), 1, self.config.vocab_size)
        for row, tokens in enumerate(seen.tolist()):
            facts = list(zip(tokens[0:-2:3], tokens[2:-2:3], strict=False))
            known = dict(facts[-self.span :])
            logits[row, 0, known.get(tokens[-2], facts[-1][1] if facts else 0)] = 1.0
        return SimpleNamespace(
            logits=logits, past_key_values=({"seen": seen}, {"unread": torch.zeros(len(seen), 2, 3)})
        )
