"""Zoology's own random stream, bit for bit: for comparing with batches drawn by its generator.

Slow by nature (numpy, row by row). `sample_batch` has the same law and should be used for everything else.
"""

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray

from recallscope.tasks.associative_recall import AssociativeRecall
from recallscope.tasks.batch import Batch


def zoology_batch(task: AssociativeRecall, num_sequences: int, seed: int, filler_seed: int | None = None) -> Batch:
    """The sequences zoology generates from this seed, on the CPU.

    Paper: Sec. 2 (`par:mqar-definition`).
    Departs: nothing is seeded globally. Zoology takes its random filler from torch's global stream, which its
        seed does not set; `filler_seed` is what `torch.manual_seed` would have been given just before.

    AR is MQAR at L = 4 N_f, cut to 2 N_f + 1 tokens.
    """
    _zoology_can_draw(task, num_sequences, filler_seed)
    V, N_f = task.vocab_size, task.num_facts
    L = _uncut_length(task)

    keys, values, slots = _rows(V, N_f, L, task.power_a, num_sequences, np.random.RandomState(seed))
    positions = 2 * N_f + 2 * slots
    tokens = np.zeros((num_sequences, L), dtype=np.int64)
    tokens[:, 0 : 2 * N_f : 2] = keys
    tokens[:, 1 : 2 * N_f : 2] = values
    np.put_along_axis(tokens, positions, keys, axis=1)
    inputs = torch.from_numpy(tokens)
    if filler_seed is not None and task.filler == "random":
        stream = torch.Generator().manual_seed(filler_seed)
        inputs = torch.where(inputs == 0, torch.randint(V, inputs.shape, generator=stream), inputs)

    query_positions, facts = torch.from_numpy(positions).sort(dim=1)
    answers = torch.from_numpy(values).gather(1, facts)
    Q = task.num_queries
    return Batch(
        tokens=inputs[:, : task.length].contiguous(),
        query_positions=query_positions[:, :Q].contiguous(),
        answers=answers[:, :Q].contiguous(),
        keys=torch.from_numpy(keys),
        all_values=torch.from_numpy(values)[:, None],
    )


def _rows(
    V: int, N_f: int, L: int, power_a: float, num_sequences: int, stream: np.random.RandomState
) -> tuple[Int[ndarray, "n N_f"], Int[ndarray, "n N_f"], Int[ndarray, "n N_f"]]:
    """Keys, values and query slots, in zoology's order: all rows of keys, then of values, then of slots."""
    num_slots = (L - 2 * N_f) // 2
    weights = power_a * np.arange(1, num_slots + 1) ** (power_a - 1)
    weights = weights / weights.sum()  # as zoology rounds it: the stream depends on the last bit

    def pick(choices: Int[ndarray, " m"], p: ndarray | None = None) -> Int[ndarray, "n N_f"]:
        return np.stack([stream.choice(choices, N_f, replace=False, p=p) for _ in range(num_sequences)])

    return pick(np.arange(1, V // 2)), pick(np.arange(V // 2, V)), pick(np.arange(num_slots), weights)


def _uncut_length(task: AssociativeRecall) -> int:
    """AR is cut from MQAR with as many slots as facts."""
    return task.context_length + 2 * task.drawn_slots


def _zoology_can_draw(task: AssociativeRecall, num_sequences: int, filler_seed: int | None) -> None:
    if num_sequences < 1:
        raise ValueError(f"num_sequences={num_sequences}: a batch holds at least one sequence. Use num_sequences >= 1.")
    if task.key_repeats > 1:
        raise ValueError(
            f"kind={task.kind!r} is not a task of zoology: its generator writes every key once, repeated "
            f"keys are the paper's own (App. I.2). Use sample_batch, or kind='mqar'."
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
