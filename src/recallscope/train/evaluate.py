"""Accuracy of any model, designed or trained, on fresh sequences of a task."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import nn

from recallscope.architectures.model import seeded_global_rng
from recallscope.architectures.user_module_model import as_recall_model
from recallscope.health import examine
from recallscope.records import binding
from recallscope.specs import TaskSpec
from recallscope.tasks.batch import Score, accuracy, answered, named, rank
from recallscope.tasks.drawing import as_generator, sample_batch

TOKENS_AT_ONCE = 2**15


@torch.no_grad()
def evaluate(
    model: nn.Module,
    task: TaskSpec,
    num_sequences: int,
    generator: torch.Generator | int,
    *,
    top_k: Sequence[int] = (),
) -> Score:
    """Share of queries whose answer has the largest logit, over `num_sequences` drawn from `generator`, or a seed.

    The model may be any torch.nn.Module whose `forward(tokens)` returns logits; one that is not ours is copied first.
    A generator in the same state draws the same set: a fixed validation set needs no memory. What a model draws itself
    while it answers follows from the generator's seed. `top_k` asks for top-k recall as well, in a second pass.
    """
    generator, model = as_generator(generator), as_recall_model(model, task)
    rows = max(1, TOKENS_AT_ONCE // task.sequence_length)
    training = model.training
    model.eval()
    right, in_context, queries, within = [], 0, 0, dict.fromkeys(top_k, 0)
    seed = generator.initial_seed() + 1  # not the stream of the sequences
    with seeded_global_rng(seed, generator.device) if model.draws_noise else contextlib.nullcontext():
        for start in range(0, num_sequences, rows):
            batch = sample_batch(task, min(rows, num_sequences - start), generator)
            predicted = model.best_tokens(batch.tokens, batch.query_positions)
            right.append(answered(predicted, batch))
            in_context += int(named(predicted, batch).sum())
            queries += predicted.numel()
            if top_k:
                ranks = rank(model.answer(batch.tokens, batch.query_positions), batch)
                within = {k: count + int((ranks < k).sum()) for k, count in within.items()}
    model.train(training)
    score = accuracy(torch.cat(right), in_context / queries)
    bound = binding(score.accuracy, score.in_context, getattr(task, "num_facts", None))
    facts = {"test_accuracy": score.accuracy, "test_queries": queries, "in_context": score.in_context, "binding": bound}
    warning = examine({"spec": {"task": task.model_dump(mode="json")}} | facts).sentence
    return replace(score, warning=warning, top_k={k: n / queries for k, n in within.items()} or None)
