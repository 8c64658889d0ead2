"""Randomness has an owner: the generator, and nothing else, decides what is drawn."""

import dataclasses

import numpy as np
import pytest
import torch

from recallscope.specs import TaskSpec
from recallscope.tasks.associative_recall import ARSpec, MQARSpec, RepeatedSpec
from recallscope.tasks.batch import Batch
from recallscope.tasks.drawing import sample_batch
from recallscope.tasks.zoology import zoology_batch

TASKS = [
    MQARSpec(vocab_size=512, num_facts=16),
    MQARSpec(vocab_size=64, num_facts=16, length=80, filler="values"),
    MQARSpec(vocab_size=8192, num_facts=16, length=256, power_a=0.01),
    ARSpec(vocab_size=512, num_facts=16),
    RepeatedSpec(vocab_size=128, num_facts=10, length=64, key_repeats=2),
]


def same(one: Batch, other: Batch) -> bool:
    names = [field.name for field in dataclasses.fields(Batch)]
    return all(torch.equal(getattr(one, name), getattr(other, name)) for name in names)


def drawn(task: TaskSpec, seed: int = 0) -> Batch:
    return sample_batch(task, 128, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("task", TASKS)
def test_the_generator_alone_decides_and_its_next_batch_is_a_new_one(task):
    generator = torch.Generator().manual_seed(0)
    assert same(sample_batch(task, 128, generator), drawn(task))
    assert not same(sample_batch(task, 128, generator), drawn(task))
    assert not same(drawn(task, 1), drawn(task))


@pytest.mark.parametrize("task", TASKS)
def test_what_was_in_memory_before_does_not_matter(task):
    """The table of owners is not cleared before use; only cells that were written may be read."""
    first = drawn(task)
    for fill in (0, 1, -1):
        rubbish = [torch.full((128, task.vocab_size // 2), fill, dtype=torch.int16) for _ in range(3)]
        del rubbish
        assert same(first, drawn(task))


@pytest.mark.parametrize("task", TASKS)
def test_the_batch_does_not_depend_on_the_number_of_threads(task):
    threads = torch.get_num_threads()
    large = [sample_batch(task, 4_000, torch.Generator().manual_seed(0))]  # large enough to be shared out
    try:
        torch.set_num_threads(4)
        large.append(sample_batch(task, 4_000, torch.Generator().manual_seed(0)))
    finally:
        torch.set_num_threads(threads)
    assert same(*large)


def test_no_global_stream_is_read_or_moved():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    batches = [drawn(task) for task in TASKS]
    batches.append(zoology_batch(TASKS[0], 4, seed=0, filler_seed=0))
    after = np.random.get_state()  # noqa: NPY002
    assert torch.equal(torch_state, torch.get_rng_state())
    assert all(np.array_equal(a, b) for a, b in zip(numpy_state, after, strict=True))

    with torch.random.fork_rng():
        torch.manual_seed(12345)
        again = [drawn(task) for task in TASKS]
        again.append(zoology_batch(TASKS[0], 4, seed=0, filler_seed=0))
    assert all(same(a, b) for a, b in zip(batches, again, strict=True))
