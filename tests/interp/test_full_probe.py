"""Full Mamba: what of the circuit is still to be seen, on a small model trained with all nonlinearities."""

import pytest
import torch
from subjects import FULL_TASK, SMALL, seeded

from recallscope.architectures.mamba import FullSpec
from recallscope.architectures.model import build_model
from recallscope.circuits import ideal_circuit
from recallscope.interp import (
    answer_attribution,
    attention_strength,
    attribution_hit_rate,
    overwrite_in_full,
    probe_facts,
    shift_test,
)
from recallscope.specs import TaskSpec
from recallscope.tasks import draw_batch


def test_attributions_add_up_to_the_logit():
    """Over all sources, plus skip and residual: the logit of the answer, times the length the norm divides by."""
    model = build_model(FullSpec(embed_dim=6, state_dim=4, skip=False), 32, seeded(), dtype=torch.float64)
    batch = draw_batch(FULL_TASK, 3, seeded(1))
    parts = answer_attribution(model, batch).sum(dim=-1)
    trace = model.trace(batch.tokens)
    y = trace.layers[-1].y
    length = (y.square().mean(dim=-1) + 1e-5).sqrt().gather(1, batch.query_positions)
    logits = trace.logits.gather(1, batch.query_positions[..., None].expand(-1, -1, 32))
    logit = logits.gather(2, batch.answers[..., None])[..., 0] * length
    asked = batch.tokens.gather(1, batch.query_positions)
    residual = torch.einsum("dbq,dbq->bq", model.E[:, batch.answers], model.E[:, asked])
    torch.testing.assert_close(parts + residual, logit)


def test_the_right_place_is_attended_to(trained_full):
    batch = draw_batch(FULL_TASK, 60, seeded(1))
    assert attribution_hit_rate(trained_full, batch) >= 0.95
    strength = attention_strength(trained_full, batch.tokens)
    assert strength.shape == (60, 12, 12)
    assert float(strength.tril(-1).abs().max()) == 0  # nothing comes from the future


@pytest.mark.parametrize("which", ["trained_full", "trained"])
def test_a_linear_probe_reads_the_facts_and_not_by_chance(which, request):
    task = FULL_TASK if which == "trained_full" else SMALL
    train, test = (draw_batch(task, 300, seeded(seed)) for seed in (1, 2))
    scores = probe_facts(request.getfixturevalue(which), train, test, seeded(3))
    assert scores.accuracy >= 0.9
    assert scores.control < 0.5


def test_the_probe_is_perfect_where_nothing_is_compressed():
    task = TaskSpec.model_validate({"vocab_size": 32, "num_facts": 4, "filler": "zero"})
    train, test = (draw_batch(task, 300, seeded(seed)) for seed in (1, 2))
    assert probe_facts(ideal_circuit(32), train, test, seeded(3)).accuracy == 1


@pytest.mark.parametrize("which", ["trained_full", "trained"])
def test_keys_answer_one_place_later(which, request):
    """In standard deviations of unrelated places; the sign is the model's own."""
    task = FULL_TASK if which == "trained_full" else SMALL
    scores = shift_test(request.getfixturevalue(which), draw_batch(task, 200, seeded(1)))
    assert abs(scores.shifted) > 1.5
    assert abs(scores.unshifted) < 0.5 * abs(scores.shifted)


def test_facts_can_be_exchanged_in_the_state_of_full_mamba_too(trained_full):
    """By the model's own writes in nearly all trials, and mostly by v' k'ᵀ, though that is not all it writes."""
    scores = overwrite_in_full(trained_full, draw_batch(FULL_TASK, 200, seeded(1)), seeded(2))
    assert scores.own_write >= 0.9
    assert scores.factored_write >= 0.7
    assert 0.2 < scores.factored_energy < 0.99
    assert scores.others_changed < 0.15


def test_surgery_on_full_mamba_needs_pairs():
    model = build_model(FullSpec(embed_dim=8, state_dim=4, conv_width=4), 32, seeded())
    with pytest.raises(ValueError, match="conv_width=2"):
        overwrite_in_full(model, draw_batch(FULL_TASK, 2, seeded()), seeded())
