"""Designed circuits, measured: the rows of an AccuracyGrid without any training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from recallscope.specs import TaskSpec


def designed_rows(
    task: TaskSpec,
    embed_dims: Iterable[int],
    state_dims: Iterable[int],
    *,
    seeds: Iterable[int] = (0,),
    num_sequences: int = 1000,
) -> Iterator[dict[str, Any]]:
    """Accuracy of the designed circuit for every D and N <= D and every seed, which owns its codes and sequences.

    Paper: App. E.1 (`app-subsec:designed-weights`), Fig. 1 (`fig:scaling-laws-2d-dims`).   Holds for: N <= D; other
        cells are left out.
    """
    import torch

    from recallscope.circuits import designed_circuit
    from recallscope.train.evaluate import evaluate

    fields = task.model_dump(mode="json")
    words = {("task" if name == "kind" else name): value for name, value in fields.items()} | {
        "model": "linear",
        "num_layers": 1,
    }
    embed_dims, state_dims = tuple(embed_dims), tuple(state_dims)
    for seed in seeds:
        for D in embed_dims:
            for N in (N for N in state_dims if N <= D):
                generator = torch.Generator().manual_seed(seed)
                model = designed_circuit(task.vocab_size, D, N, generator)
                score = evaluate(model, task, num_sequences, generator)
                yield words | {
                    "embed_dim": D,
                    "state_dim": N,
                    "seed": seed,
                    "test_accuracy": score.accuracy,
                    "test_queries": score.queries,
                }
