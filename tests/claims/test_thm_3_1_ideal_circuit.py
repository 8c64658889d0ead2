"""Thm 3.1: with D = N = V the circuit recalls perfectly, if no filler poses as a key."""

import pytest
import torch

from recallscope.circuits.linear import ideal_circuit
from recallscope.specs import parse_task
from recallscope.tasks.associative_recall import ARSpec, MQARSpec
from recallscope.tasks.batch import accuracy, answered
from recallscope.tasks.drawing import sample_batch


def right(task, sequences=400, **options):
    model = ideal_circuit(task.vocab_size, **options)
    batch = sample_batch(task, sequences, torch.Generator().manual_seed(5))
    with torch.no_grad():
        return answered(model.answer(batch.tokens, batch.query_positions), batch), batch


@pytest.mark.parametrize("filler", ["zero", "values"])
@pytest.mark.parametrize(
    ("kind", "N_f", "L"), [("mqar", 8, 32), ("mqar", 8, 64), ("mqar", 1, 4), ("ar", 8, None), ("mqar", 31, 124)]
)
def test_recall_is_perfect_without_key_filler(kind, N_f, L, filler):
    got, _ = right(parse_task({"kind": kind, "vocab_size": 64, "num_facts": N_f, "length": L, "filler": filler}))
    assert got.all()


def test_recall_is_perfect_for_ar_whatever_the_filler():
    got, _ = right(ARSpec(vocab_size=16, num_facts=7))
    assert got.all()


def test_values_only_projection_restores_perfection_at_the_least_length():
    """Departs: P_out = (0 | I) is not enough with random filler; (0 | Π_values) is, if L = 4 N_f."""
    task = MQARSpec(vocab_size=64, num_facts=8, length=32)
    assert not right(task)[0].all()
    assert right(task, values_only=True)[0].all()
    assert not right(MQARSpec(vocab_size=64, num_facts=8, length=64), values_only=True)[0].all()


def test_random_filler_fails_exactly_where_it_repeats_the_key():
    """No tolerance: a query is lost iff its key stood, as filler, somewhere before it (ties go to the lower token: a
    key)."""
    task = MQARSpec(vocab_size=64, num_facts=8, length=32)
    got, batch = right(task, 2000)
    before = torch.arange(task.length) < batch.query_positions[..., None]
    late = torch.arange(task.length) >= task.context_length
    same = batch.tokens[:, None, :] == batch.tokens.gather(1, batch.query_positions)[..., None]
    assert torch.equal(got, ~(same & before & late).any(dim=-1))


def test_loss_with_random_filler_is_the_predicted_one():
    """1 - mean_g (1 - (1 - 1/V)^g) at V=64, N_f=8, L=32: 0.9472. Within 4 standard errors: a false alarm in 16,000
    seeds."""
    task = MQARSpec(vocab_size=64, num_facts=8, length=32)
    score = accuracy(right(task, 20_000)[0])
    predicted = sum((1 - 1 / 64) ** g for g in range(8)) / 8
    assert abs(score.accuracy - predicted) < 4 * score.standard_error
