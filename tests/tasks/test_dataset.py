"""Tasks as torch datasets: equal seed, equal items; workers change nothing; the layout and numbers are zoology's."""

import pytest
import torch
from test_zoology_stream import fingerprint
from torch.utils.data import DataLoader

import recallscope as rs
from recallscope.tasks.batch import NOTHING_ASKED, Batch

TASKS = [
    rs.MQARSpec(vocab_size=32, num_facts=3),
    rs.ARSpec(vocab_size=32, num_facts=3),
    rs.RepeatedSpec(vocab_size=32, num_facts=3, key_repeats=2),
]


def batches(stream, workers=0):
    return list(DataLoader(stream, batch_size=None, num_workers=workers))


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.kind)
def test_equal_seed_equal_items_for_every_task(task):
    one, again, other = (rs.RecallDataset(task, 20, seed=seed) for seed in (3, 3, 4))
    assert len(one) == 20
    for (inputs, labels), (inputs_again, labels_again) in zip(one, again, strict=True):
        assert torch.equal(inputs, inputs_again)
        assert torch.equal(labels, labels_again)
    assert not torch.equal(one.inputs, other.inputs)


def test_labels_are_answers_at_the_queries_and_ignored_elsewhere():
    for inputs, labels in rs.MQARDataset(vocab_size=32, num_facts=3, num_sequences=10, length=16):
        facts = dict(zip(inputs[0:6:2].tolist(), inputs[1:6:2].tolist(), strict=True))
        asked = labels != NOTHING_ASKED
        assert int(asked.sum()) == 3
        assert labels[asked].tolist() == [facts[int(token)] for token in inputs[asked]]


def test_zoologys_own_sequences_come_bit_for_bit():
    """The fingerprint is of the original generator's inputs and labels (see test_zoology_stream)."""
    task = rs.MQARSpec(vocab_size=128, num_facts=16, length=64, power_a=0.01, filler="zero")
    made = rs.RecallDataset.from_zoology(task, 64, seed=0)
    tokens, labels = next(iter(DataLoader(made, batch_size=64)))
    positions = (labels != NOTHING_ASKED).nonzero()[:, 1].view(64, 16)
    batch = Batch(tokens, positions, labels.gather(1, positions), tokens[:, :32:2], tokens[:, None, 1:32:2])
    assert fingerprint(batch) == "3db18547e00a4719"
    assert torch.equal(batch.targets, labels)


def test_the_same_batches_in_the_same_order_whatever_the_number_of_workers():
    stream = rs.RecallStream(TASKS[0], batch_size=4, seed=5, num_batches=5)
    alone = batches(stream)
    assert len(alone) == 5
    for workers in (1, 2):
        for (inputs, labels), (inputs_alone, labels_alone) in zip(batches(stream, workers), alone, strict=True):
            assert torch.equal(inputs, inputs_alone)
            assert torch.equal(labels, labels_alone)
    assert len({inputs.numpy().tobytes() for inputs, _ in alone}) == 5, "no batch comes twice"


def test_a_stream_resumes_where_it_was_left():
    whole = batches(rs.RecallStream(TASKS[0], batch_size=4, num_batches=5))
    rest = batches(rs.RecallStream(TASKS[0], batch_size=4, num_batches=2, start=3))
    assert [inputs.tolist() for inputs, _ in rest] == [inputs.tolist() for inputs, _ in whole[3:]]


def test_the_global_stream_is_neither_read_nor_moved():
    before = torch.get_rng_state()
    rs.MQARDataset(vocab_size=32, num_facts=3, num_sequences=5)
    next(iter(rs.RecallStream(TASKS[0], batch_size=2)))
    assert torch.equal(before, torch.get_rng_state())


def test_bad_sizes_are_explained():
    with pytest.raises(ValueError, match="at least one sequence"):
        rs.RecallDataset(TASKS[0], 0)
    with pytest.raises(ValueError, match="num_facts"):
        rs.MQARDataset(vocab_size=8, num_facts=30, num_sequences=2)
