"""What answers alone tell, exact on models whose mistakes are known; and linear decoders of the state."""

import math

import pytest
import torch
from subjects import FULL_TASK, SMALL

from closeness import seeded
from recallscope.architectures.model import RecallModel
from recallscope.circuits.linear import ideal_circuit
from recallscope.interp.decoders import measure_behaviour, probe_facts, shift_test
from recallscope.specs import ModelSpec, parse_task
from recallscope.tasks.drawing import sample_batch


class Parrot(RecallModel):
    """Answers with the same token everywhere, or with a given token per query."""

    def __init__(self, vocab_size, say):
        super().__init__(ModelSpec(), vocab_size)
        self.say = say

    def forward(self, tokens):
        return torch.nn.functional.one_hot(self.say(tokens), self.vocab_size).float()

    def draw_weights(self, generator, *, embedding_std=1.0):
        """It has none."""


def first_value(tokens):
    return tokens[:, 1:2].expand_as(tokens)


def test_the_ideal_circuit_errs_nowhere():
    task = parse_task({"vocab_size": 32, "num_facts": 4, "filler": "zero"})
    seen = measure_behaviour(ideal_circuit(32), sample_batch(task, 20, seeded()))
    assert seen.accuracy == 1
    assert seen.recall_by_place == (1.0,) * 4
    assert math.isnan(seen.wrong_other_value)
    assert (seen.margin, seen.low_margin) == (1, 1)
    assert seen.queries == 80


def test_a_model_that_knows_the_first_fact_only_recalls_the_oldest_and_errs_with_its_value():
    seen = measure_behaviour(Parrot(64, first_value), sample_batch(SMALL, 30, seeded()))
    assert seen.recall_by_place == (1.0, 0.0, 0.0, 0.0)
    assert seen.accuracy == 0.25
    assert (seen.wrong_other_value, seen.wrong_old_value, seen.wrong_else) == (1, 0, 0)
    assert seen.margin == pytest.approx(0.25 - 0.75)


def test_keys_of_several_tokens_are_told_apart_by_all_of_them():
    task = parse_task({"kind": "template_mqar", "vocab_size": 64, "num_facts": 4, "rows": 2, "columns": 2})
    parrot = Parrot(64, lambda tokens: tokens[:, 2:3].expand_as(tokens))
    assert measure_behaviour(parrot, sample_batch(task, 30, seeded())).recall_by_place == (1.0, 0.0, 0.0, 0.0)


def test_a_model_that_says_a_key_errs_with_something_else():
    seen = measure_behaviour(Parrot(64, lambda tokens: tokens), sample_batch(SMALL, 30, seeded()))
    assert (seen.accuracy, seen.wrong_other_value, seen.wrong_else) == (0, 0, 1)


def test_where_keys_are_repeated_an_earlier_value_is_told_from_another_facts():
    task = parse_task({"kind": "repeated", "vocab_size": 64, "num_facts": 2, "key_repeats": 2})
    seen = measure_behaviour(Parrot(64, first_value), sample_batch(task, 50, seeded(1)))
    assert seen.wrong_old_value == pytest.approx(0.5, abs=0.05)  # of the first key; of the second it is another's
    assert seen.wrong_other_value == pytest.approx(0.5, abs=0.05)


def test_many_facts_are_pooled_by_neighbours():
    task = parse_task({"vocab_size": 128, "num_facts": 40, "length": 160})
    seen = measure_behaviour(Parrot(128, first_value), sample_batch(task, 10, seeded()))
    assert len(seen.recall_by_place) == 16
    assert seen.recall_by_place[0] == pytest.approx(1 / 3)


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
