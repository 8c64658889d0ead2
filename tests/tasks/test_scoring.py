"""Accuracy over queries, and an error bar that knows the queries of one sequence err together."""

import math

import pytest
import torch

from recallscope.tasks.associative_recall import MQARSpec
from recallscope.tasks.batch import Score, accuracy, answered, rank, score
from recallscope.tasks.drawing import sample_batch

TASK = MQARSpec(vocab_size=64, num_facts=4, length=24)


def some_batch(n=50):
    return sample_batch(TASK, n, torch.Generator().manual_seed(0))


def test_right_answers_score_1_however_they_are_given():
    batch = some_batch()
    logits_at_queries = torch.nn.functional.one_hot(batch.answers, TASK.vocab_size).float()
    everywhere = batch.targets.clamp(min=0)
    logits_everywhere = torch.nn.functional.one_hot(everywhere, TASK.vocab_size).to(torch.bfloat16)
    for output in (batch.answers, everywhere, logits_at_queries, logits_everywhere):
        assert score(output, batch) == Score(accuracy=1.0, standard_error=0.0, queries=200)


def test_only_query_positions_count():
    batch = some_batch()
    predictions = torch.zeros_like(batch.tokens)  # wrong at every query: no answer is 0
    assert score(predictions, batch).accuracy == 0
    predictions.scatter_(1, batch.query_positions[:, :1], batch.answers[:, :1])
    assert score(predictions, batch).accuracy == 0.25


def test_answered_says_which_queries():
    batch = some_batch()
    predictions = batch.answers.clone()
    predictions[3, 2] = 0
    assert answered(predictions, batch).logical_not().nonzero().tolist() == [[3, 2]]


def test_a_logit_that_is_not_a_number_is_never_right():
    batch = some_batch(2)
    logits = torch.zeros(2, 4, TASK.vocab_size).scatter_(2, batch.answers[:, :, None], math.nan)
    assert score(logits, batch).accuracy == 0


def test_the_rank_counts_what_is_not_below_the_answer():
    """Ties and logits that are not numbers count against it: a constant output is right for no k below V."""
    batch = some_batch(3)
    logits = torch.zeros(3, 4, TASK.vocab_size)
    logits[1] = torch.randn(4, TASK.vocab_size, generator=torch.Generator().manual_seed(1))
    logits[2].scatter_(1, batch.answers[2, :, None], math.nan)
    found, order = rank(logits, batch), logits[1].argsort(dim=-1, descending=True)
    assert (found[[0, 2]] == TASK.vocab_size - 1).all()
    assert found[1].tolist() == (order == batch.answers[1, :, None]).long().argmax(dim=-1).tolist()


def test_the_standard_error_is_that_of_the_mean_over_sequences():
    right = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0], [1, 1, 0, 0]], dtype=torch.bool)
    assert accuracy(right).accuracy == 0.5
    assert accuracy(right).standard_error == pytest.approx(0.5 / math.sqrt(3), rel=1e-12)


def test_the_standard_error_covers_the_scatter_of_correlated_queries():
    """Sequences known wholly or not at all: treating queries as independent would give half the scatter.

    4000 repetitions know the scatter to 1.1 %, so 6 % cries wolf less than once in a million times.
    """
    generator = torch.Generator().manual_seed(0)
    known = torch.rand(4_000, 100, 1, generator=generator) < 0.7
    scores = [accuracy(right.expand(100, 4)) for right in known]
    scatter = torch.tensor([s.accuracy for s in scores]).std()
    assert sum(s.standard_error for s in scores) / 4_000 == pytest.approx(float(scatter), rel=0.06)


def test_one_sequence_has_no_error_bar():
    assert math.isnan(accuracy(torch.tensor([[True, False]])).standard_error)
    assert accuracy(torch.tensor([[True, False]])).accuracy == 0.5


def test_results_of_several_batches_can_be_joined():
    batch = some_batch()
    predictions = batch.answers.where(torch.arange(50)[:, None] % 3 > 0, 0)
    parts = answered(predictions, batch).split(20)
    assert accuracy(torch.cat(parts)) == score(predictions, batch)


def test_output_of_another_shape_is_refused_with_the_way_out():
    batch = some_batch(5)
    with pytest.raises(ValueError, match=r"at the queries, \(5, 4, ...\), or at every position, \(5, 24, ...\)"):
        score(torch.zeros(5, 7, TASK.vocab_size), batch)
    with pytest.raises(ValueError, match="covers 3 sequences"):
        score(torch.zeros(3, 4, dtype=torch.int64), batch)
