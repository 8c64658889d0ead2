"""Zoology's own random stream, bit for bit: for comparing with batches drawn by its generator.

Slow by nature (numpy, row by row). `sample_batch` has the same law and should be used for everything else.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from recallscope.specs import TaskSpec
from recallscope.tasks.batch import Batch
from recallscope.tasks.drawing import grid_keys, laid_out, section, updated

Pick = Callable[..., Int[Tensor, "n count"]]
Facts = tuple[Int[Tensor, "n T"], Int[Tensor, "n N_f *m"], Int[Tensor, "n N_k N_f"]]


def zoology_batch(task: TaskSpec, num_sequences: int, seed: int, filler_seed: int | None = None) -> Batch:
    """The sequences zoology generates from this seed, on the CPU.

    Paper: Sec. 2 (`par:mqar-definition`).
    Departs: nothing is seeded globally. Zoology takes its random filler from torch's global stream, which its
        seed does not set; `filler_seed` is what `torch.manual_seed` would have been given just before.

    AR is MQAR at L = 4 N_f, cut to 2 N_f + 1 tokens.
    """
    _zoology_can_draw(task, num_sequences, filler_seed)
    recall: Any = task
    stream = np.random.RandomState(seed)

    def pick(low: int, high: int, count: int, p: np.ndarray | None = None) -> Int[Tensor, "n count"]:
        choices = np.arange(low, high)
        rows = [stream.choice(choices, count, replace=False, p=p) for _ in range(num_sequences)]
        return torch.from_numpy(np.stack(rows))

    V, N_f, Q, num_slots = task.vocab_size, recall.num_facts, task.num_queries, recall.drawn_slots
    context, keys, all_values = FACTS[task.kind](recall, pick, stream)
    weights = recall.power_a * np.arange(1, num_slots + 1) ** (recall.power_a - 1)
    weights = weights / weights.sum()  # as zoology rounds it: the stream depends on the last bit
    slots, facts = pick(0, num_slots, N_f, weights).sort(dim=1)
    starts = recall.context_length + (recall.key_tokens + 1) * slots[:, :Q]
    rest = context.new_zeros(num_sequences, task.sequence_length - recall.context_length)
    batch = laid_out(context, keys, all_values, facts[:, :Q], starts, rest)
    if filler_seed is not None and recall.filler == "random":
        filler = torch.randint(V, batch.tokens.shape, generator=torch.Generator().manual_seed(filler_seed))
        batch.tokens.copy_(torch.where(batch.tokens == 0, filler, batch.tokens))
    return batch


def _once(task: Any, pick: Pick, stream: np.random.RandomState) -> Facts:
    """What stands before the queries, the keys, and their values, drawn in zoology's order."""
    keys, values = _plain(task, pick)
    return section(keys, values), keys, values[:, None]


def _plain(task: Any, pick: Pick) -> tuple[Int[Tensor, "n N_f"], Int[Tensor, "n N_f"]]:
    half = task.vocab_size // 2
    return pick(1, half, task.num_facts), pick(half, task.vocab_size, task.num_facts)


def _updated(task: Any, pick: Pick, stream: np.random.RandomState) -> Facts:
    """The new values first, then which keys have them."""
    (keys, values), words = _plain(task, pick), np.arange(task.vocab_size // 2, task.vocab_size)
    new = [[stream.choice(words[words != old]) for old in row[: task.num_updates]] for row in values.numpy()]
    which = pick(0, task.num_facts, task.num_updates)
    return updated(keys, values, which, torch.tensor(new, dtype=torch.int64).view_as(which))


def _in_a_grid(task: Any, pick: Pick, stream: np.random.RandomState) -> Facts:
    """Keys are the cells of a grid."""
    N_f, third = task.num_facts, task.vocab_size // 3
    first, second = pick(1, third, task.side), pick(third, 2 * third, task.side)
    order = torch.from_numpy(np.stack([stream.permutation(N_f) for _ in range(len(first))]))
    keys, values = grid_keys(first, second, order), pick(2 * third, task.vocab_size, N_f)
    return section(keys, values), keys, values[:, None]


FACTS = {"ar": _once, "mqar": _once, "forgetting_mqar": _updated, "compositional_mqar": _in_a_grid}


def _uncut_length(task: Any) -> int:
    """AR is cut from MQAR with as many slots as facts."""
    return max(task.length, task.context_length + 2 * task.drawn_slots)


def _zoology_can_draw(task: Any, num_sequences: int, filler_seed: int | None) -> None:
    if num_sequences < 1:
        raise ValueError(f"num_sequences={num_sequences}: a batch holds at least one sequence. Use num_sequences >= 1.")
    if task.kind not in FACTS:
        raise ValueError(
            f"kind={task.kind!r} is not one of the tasks of zoology that can be repeated, {', '.join(FACTS)}. "
            f"Use sample_batch, or kind='mqar'."
        )
    if task.filler == "values":
        raise ValueError(
            "filler='values' is not a filler of zoology: its gaps hold any token, or 0. "
            "Use sample_batch, or filler='random' or 'zero'."
        )
    V, L = task.vocab_size, _uncut_length(task)
    if L >= V:
        uncut = f" (AR is cut from L = 4 N_f = {L})" if L > task.length else ""
        raise ValueError(
            f"vocab_size={V} is not above the length {L}{uncut}: zoology asserts V > L. "
            f"Use vocab_size >= {L + 2 - L % 2}, or sample_batch, which does not ask for it."
        )
    if L == task.length and task.filler == "random" and filler_seed is None:
        raise ValueError(
            "filler='random' needs filler_seed: zoology's filler comes from torch's stream, which its seed "
            "does not set. Give the number that torch.manual_seed was given, or use filler='zero'."
        )
