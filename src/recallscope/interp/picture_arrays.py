"""What the figures of the mechanism draw, as plain arrays of one sequence: small enough to be kept beside a record."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from recallscope.architectures.model import RecallModel
from recallscope.interp.attention import copy_map, ideal_attention, joint_attention, shift_map
from recallscope.interp.hash_table import hash_tables
from recallscope.interp.operators import effective_operators, mean_diagonals, strength
from recallscope.specs import TaskSpec
from recallscope.tasks import Batch

MOST_TOKENS = 512  # a table of more has entries smaller than a dot of the picture


def picture_arrays(model: RecallModel, batch: Batch, task: TaskSpec) -> dict[str, NDArray[Any]]:
    """Tables, maps and operators of the batch's first sequence, in units of one fact or one match.

    `facts` are rows (value, key) into the tables; `shown` are the tokens whose rows and columns are kept. Numbers are
    half precision: three digits, which is more than a picture shows.

    Paper: Fig. 3 (`fig:reversing-hidden`), Fig. 13-16 (`app-fig:reversing-hidden`, `fig:reversing-attn`,
        `fig:reversing-conv`, `app-fig:reversing-operators`).   Holds for: models with operators.
    """
    ops, tokens = effective_operators(model), batch.tokens
    value, match = mean_diagonals(ops)
    shown = tokens_to_show(batch, task.vocab_size)
    tables, few = hash_tables(model, batch, tokens=shown), ops.restricted(shown)
    arrays = {
        "ideal_table": tables.ideal[0],
        "hashed_table": tables.hashed[0],
        "decoded_table": tables.decoded[0] / strength(ops),
        "ideal_attention": ideal_attention(tokens, delay=ops.delay)[0],
        "attention": joint_attention(model, tokens)[0],
        "copied": copy_map(ops, tokens)[0] / value,
        "shifted": shift_map(ops, tokens)[0] / match,
        "value_operator": few.value_operator / value,
        "match_operator": few.match_operator / match,
    }
    kept: dict[str, NDArray[Any]] = {
        name: np.asarray(array.detach().cpu().numpy(), np.float16) for name, array in arrays.items()
    }
    facts = torch.stack((tables.values[0], tables.keys[0]), dim=1)
    return kept | {
        "facts": np.asarray(facts.cpu().numpy(), np.int32),
        "shown": np.asarray(shown.cpu().numpy(), np.int32),
        "delay": np.array(ops.delay, np.int32),
    }


def tokens_to_show(batch: Batch, vocab_size: int) -> torch.Tensor:
    """All tokens, or of a large vocabulary as many keys as values, the facts' among them; ascending."""
    if vocab_size <= MOST_TOKENS:
        return torch.arange(vocab_size, device=batch.keys.device)
    half = vocab_size // 2
    each = min(half, max(MOST_TOKENS // 2, batch.all_values.numel()))

    def chosen(used: torch.Tensor) -> torch.Tensor:
        of_facts = torch.zeros(half, dtype=torch.bool, device=used.device)
        of_facts[used.flatten() % half] = True
        others = (~of_facts).nonzero()[: each - int(of_facts.sum()), 0]
        return torch.cat((of_facts.nonzero()[:, 0], others)).sort().values

    return torch.cat((chosen(batch.keys), chosen(batch.all_values) + half))
