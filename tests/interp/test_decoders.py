"""Probes that need no operators: on a linear model, and on a small full Mamba with all its nonlinearities."""

import pytest
from subjects import FULL_TASK, SMALL, seeded

from recallscope.circuits.linear import ideal_circuit
from recallscope.interp.decoders import probe_facts, shift_test
from recallscope.specs import parse_task
from recallscope.tasks.drawing import sample_batch


@pytest.mark.parametrize("which", ["trained_full", "trained"])
def test_a_linear_probe_reads_the_facts_and_not_by_chance(which, request):
    task = FULL_TASK if which == "trained_full" else SMALL
    train, test = (sample_batch(task, 300, seeded(seed)) for seed in (1, 2))
    scores = probe_facts(request.getfixturevalue(which), train, test, seeded(3))
    assert scores.accuracy >= 0.9
    assert scores.control < 0.5


def test_the_probe_is_perfect_where_nothing_is_compressed():
    task = parse_task({"vocab_size": 32, "num_facts": 4, "filler": "zero"})
    train, test = (sample_batch(task, 300, seeded(seed)) for seed in (1, 2))
    assert probe_facts(ideal_circuit(32), train, test, seeded(3)).accuracy == 1


@pytest.mark.parametrize("which", ["trained_full", "trained"])
def test_keys_answer_one_place_later(which, request):
    """In standard deviations of unrelated places; the sign is the model's own."""
    task = FULL_TASK if which == "trained_full" else SMALL
    scores = shift_test(request.getfixturevalue(which), sample_batch(task, 200, seeded(1)))
    assert abs(scores.shifted) > 1.5
    assert abs(scores.unshifted) < 0.5 * abs(scores.shifted)
