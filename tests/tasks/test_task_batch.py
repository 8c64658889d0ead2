"""A Batch is a fact: fixed once made, and of the shapes it claims."""

import dataclasses

import pytest
import torch
from jaxtyping import TypeCheckError

from recallscope.tasks.associative_recall import MQARSpec
from recallscope.tasks.batch import Batch
from recallscope.tasks.drawing import sample_batch


def some_batch() -> Batch:
    return sample_batch(MQARSpec(vocab_size=16, num_facts=2), 3, torch.Generator().manual_seed(0))


def test_a_batch_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        some_batch().tokens = torch.zeros(3, 8, dtype=torch.int64)


def test_a_field_of_the_wrong_shape_is_caught():
    """This is also the proof that shapes are checked while testing."""
    batch = some_batch()
    with pytest.raises(TypeCheckError):
        dataclasses.replace(batch, answers=batch.answers[:, :1])
    with pytest.raises(TypeCheckError):
        dataclasses.replace(batch, tokens=batch.tokens.float())


def test_shapes_of_functions_are_checked_too():
    from recallscope.tasks.batch import accuracy

    with pytest.raises(TypeCheckError):
        accuracy(torch.zeros(3, dtype=torch.bool))


def test_to_moves_every_field():
    moved = some_batch().to("meta")
    assert {getattr(moved, field.name).device.type for field in dataclasses.fields(moved)} == {"meta"}
    assert torch.equal(some_batch().to("cpu").tokens, some_batch().tokens)


def test_len_counts_sequences():
    assert len(some_batch()) == 3
