"""Causal checks: if the state is a table of v' k'ᵀ, then editing it must change answers, and only those."""

import pytest
import torch
from subjects import FULL_TASK, SMALL, seeded

from closeness import assert_near
from recallscope.architectures.mamba import LinearMambaSpec, Mamba2Spec, MambaSpec, MultiHeadSpec
from recallscope.architectures.model import MissingCapabilityError, build_model
from recallscope.circuits.linear import designed_circuit, designed_depth, ideal_circuit
from recallscope.interp.interventions import (
    ablate_blocks,
    answer_ablated,
    fact_writes,
    overwrite_facts,
    project_on_facts,
)
from recallscope.interp.operators import token_operators
from recallscope.interp.states import states_at
from recallscope.specs import parse_task
from recallscope.tasks.drawing import sample_batch

CLEAN = parse_task({"vocab_size": 32, "num_facts": 4, "filler": "values"})


def accuracy(model, batch):
    return float((model.answer(batch.tokens, batch.query_positions).argmax(-1) == batch.answers).double().mean())


def test_a_fact_is_written_as_its_outer_product_and_nothing_else_is():
    """In the circuit the state is Σ v' k'ᵀ over all neighbouring pairs, exactly."""
    model = designed_circuit(32, 12, 6, seeded())
    tokens = sample_batch(CLEAN, 1, seeded(1)).tokens
    (state,) = states_at(model, tokens, 7)
    (writes,) = fact_writes(model, tokens[0, :7], tokens[0, 1:8])
    assert_near(state[:, :, 12:], writes.sum(dim=0, keepdim=True)[:, :, 12:])


@pytest.mark.parametrize("width", [2, 3, 4])
def test_wider_windows_write_a_fact_once_per_place(width):
    """The bilinear (value, key) part of all windows that hold both, for any weights."""
    model = build_model(LinearMambaSpec(embed_dim=5, state_dim=3, conv_width=width), 12, seeded(), dtype=torch.float64)

    def state(*tokens):
        return states_at(model, torch.tensor([[*tokens, *[0] * (width - 2)]]), len(tokens) + width - 3)[0]

    with torch.no_grad():
        model.E[:, 0] = 0  # token 0 is silence
    k, v = 3, 8
    mixed = state(k, v) - state(k, 0) - state(0, v)
    (cross,) = fact_writes(model, torch.tensor([k]), torch.tensor([v]))
    other_way = _swapped(model, k, v)
    assert_near(mixed, cross + other_way)


def _swapped(model, k, v):
    """What the same windows write with the key's token as value and the value's token as key."""
    part = token_operators(model)[0]
    W, V = part.conv_width, part.size
    total = torch.zeros(1, 1, part.Pi_v_in.shape[0], part.Pi_k_in.shape[0], dtype=torch.float64)
    for place in range(W - 1):  # the key's token at `place`, the value's at the next
        value_of_k = part.Pi_v_in[:, place * V + k]
        key_of_v = part.Pi_k_in[:, (place + 1) * V + v]
        total += torch.outer(value_of_k, key_of_v)
    return total


SINGLE = [
    LinearMambaSpec(embed_dim=6, state_dim=3, conv_width=4),
    *(MultiHeadSpec(embed_dim=6, state_dim=3, num_heads=2, head_pattern=p) for p in ("MHA", "MQA", "MKA", "MVA")),
    MambaSpec(embed_dim=6, state_dim=3),
    MambaSpec(embed_dim=6, state_dim=3, conv_width=3, transition="identity"),
    *(Mamba2Spec(embed_dim=6, state_dim=3, num_heads=2, head_pattern=p) for p in ("MHA", "MQA", "MKA", "MVA")),
]
DEEP = [
    LinearMambaSpec(embed_dim=6, state_dim=3, num_layers=2),
    MambaSpec(embed_dim=6, state_dim=3, num_layers=2),
    Mamba2Spec(embed_dim=6, state_dim=3, num_heads=2, num_layers=2),
]


def about(spec):
    return f"{spec.kind}-{getattr(spec, 'head_pattern', f'layers{spec.depth}-width{spec.conv_width}')}"


@pytest.mark.parametrize("spec", SINGLE, ids=about)
def test_with_the_state_of_another_context_a_model_answers_as_after_that_context(spec):
    """Exactly, decay and gate included; the windows that still hold the context are made equal."""
    model = build_model(spec, 32, seeded(), dtype=torch.float64)
    ours, other = sample_batch(CLEAN, 2, seeded(1)).tokens, sample_batch(CLEAN, 2, seeded(2)).tokens
    other[:, 9 - spec.conv_width :] = ours[:, 9 - spec.conv_width :]
    positions = torch.tensor([[9, 12], [8, 15]])
    edit = states_at(model, other, 7)[0] - states_at(model, ours, 7)[0]
    said = model.answer_edited(ours, positions, (edit,), after=7)
    assert_near(said, model.answer(other, positions).detach())


@pytest.mark.parametrize("spec", [*SINGLE, *DEEP], ids=about)
def test_no_edit_changes_nothing(spec):
    model, batch = build_model(spec, 32, seeded()), sample_batch(CLEAN, 4, seeded())
    nothing = tuple(torch.zeros_like(state) for state in states_at(model, batch.tokens, 7))
    said = model.answer_edited(batch.tokens, batch.query_positions, nothing, after=7)
    assert_near(said, model.answer(batch.tokens, batch.query_positions).detach())


@pytest.mark.parametrize(
    "spec", [MambaSpec(embed_dim=6, state_dim=3), Mamba2Spec(embed_dim=6, state_dim=3, num_heads=2)]
)
def test_a_write_fades_as_the_sequence_fades_it(spec):
    """All writes, each faded since it was made, add up to the state."""
    model = build_model(spec, 32, seeded(), dtype=torch.float64)
    tokens = sample_batch(CLEAN, 2, seeded(1)).tokens
    (memory,) = model.memories(tokens[:, :8])
    whole = sum(memory.faded(memory.write(t), torch.tensor([t, t]), 7) for t in range(8))
    assert_near(whole, states_at(model, tokens, 7)[0])


def test_overwriting_in_the_ideal_circuit_is_perfect():
    model, batch = ideal_circuit(32), sample_batch(CLEAN, 50, seeded())
    scores = overwrite_facts(model, batch, seeded(1))
    assert scores.success == scores.erased == 1
    assert scores.others_changed == scores.others_changed_control == 0
    assert scores.others_accuracy == scores.others_accuracy_before == 1
    assert scores.trials == 50


def test_overwriting_in_a_circuit_with_ample_dimensions_succeeds():
    """D = N = 64 for 4 facts: the noise is a tenth of a fact, and one failure in 200 would be rare."""
    model, batch = designed_circuit(64, 64, 64, seeded()), sample_batch(SMALL, 200, seeded(1))
    scores = overwrite_facts(model, batch, seeded(2))
    assert scores.success >= 0.98
    assert abs(scores.others_accuracy - scores.others_accuracy_before) <= 0.02


@pytest.mark.parametrize("which", ["trained", "trained_wide", "trained_heads", "trained_deep"])
def test_overwriting_in_a_trained_model_changes_that_answer_and_no_other(which, request):
    """At least 95 % of 200 trials; others change as often as if the sequence were rewritten (3 standard errors)."""
    model, batch = request.getfixturevalue(which), sample_batch(SMALL, 200, seeded(1))
    scores = overwrite_facts(model, batch, seeded(2))
    assert scores.success >= 0.95
    others = 200 * 3
    chance = scores.others_changed_control
    assert scores.others_changed <= chance + 3 * (2 * max(chance, 1 / others) / others) ** 0.5
    assert scores.erased >= 0.93  # the old value may still win by chance, 1 of 32


@pytest.mark.parametrize(("which", "lost"), [("trained", 0.02), ("trained_heads", 0.02), ("trained_deep", 0.1)])
def test_the_facts_are_all_that_is_needed_of_the_state(which, lost, request):
    """Deep models lose a little: upper layers also store what lower ones said, which is no fact of their own."""
    model, batch = request.getfixturevalue(which), sample_batch(SMALL, 200, seeded(1))
    scores = project_on_facts(model, batch)
    assert scores.facts_only >= accuracy(model, batch) - lost
    assert scores.without_facts <= 0.15
    assert scores.energy > 0.5


def test_projection_of_the_ideal_table_keeps_its_facts_exactly():
    batch = sample_batch(CLEAN, 20, seeded())
    scores = project_on_facts(ideal_circuit(32), batch)
    assert scores.facts_only == 1
    assert scores.without_facts == 0
    assert scores.energy == pytest.approx(1)


def test_patching_reaches_every_layer_of_a_depth_circuit():
    model = designed_depth(64, 96, 16, 2, seeded())
    batch = sample_batch(SMALL, 100, seeded(1))
    assert overwrite_facts(model, batch, seeded(2)).success >= 0.95


def test_facts_can_be_exchanged_in_the_state_of_full_mamba_too(trained_full):
    """By the model's own writes in nearly all trials, and mostly by v' k'ᵀ, though that is not all it writes."""
    scores = overwrite_facts(trained_full, sample_batch(FULL_TASK, 200, seeded(1)), seeded(2))
    assert scores.own_write >= 0.9
    assert scores.factored_write == scores.success >= 0.7
    assert 0.2 < scores.factored_energy < 0.99
    assert scores.others_changed < 0.15
    assert scores.erased >= 0.7


def test_the_linear_model_has_its_codes_from_its_weights(trained, trained_wide):
    batch = sample_batch(SMALL, 100, seeded(1))
    scores = overwrite_facts(trained, batch, seeded(2))
    assert scores.own_write >= 0.95
    assert scores.factored_energy is None
    assert overwrite_facts(trained_wide, batch, seeded(2)).own_write is None  # it writes a fact at several tokens


def test_mamba_2_is_operated_on_like_the_others():
    """Untrained, so it answers by chance: what counts is that the model's own writes can be exchanged at all."""
    model = build_model(Mamba2Spec(embed_dim=8, state_dim=4, num_heads=2), 32, seeded())
    scores = overwrite_facts(model, sample_batch(FULL_TASK, 20, seeded(1)), seeded(2))
    assert 0 <= scores.success <= 1
    assert 0 < scores.factored_energy < 1


def test_patching_full_mamba_needs_pairs():
    model = build_model(MambaSpec(embed_dim=8, state_dim=4, conv_width=4), 32, seeded())
    with pytest.raises(MissingCapabilityError, match="conv_width=2"):
        overwrite_facts(model, sample_batch(FULL_TASK, 2, seeded()), seeded())


def test_the_predicted_blocks_suffice_and_are_needed(trained):
    batch = sample_batch(SMALL, 100, seeded(1))
    scores = ablate_blocks(trained, batch)
    assert scores.circuit_only >= accuracy(trained, batch) - 0.02
    assert max(scores.without_value_block, scores.without_match_block) < 0.3
    exact = ablate_blocks(ideal_circuit(32), sample_batch(CLEAN, 20, seeded()))
    assert (exact.circuit_only, exact.without_value_block, exact.without_match_block) == (1, 0, 0)


@pytest.mark.parametrize("width", [2, 3])
def test_ablating_nothing_is_the_forward_pass(width):
    model = build_model(
        LinearMambaSpec(embed_dim=5, state_dim=3, conv_width=width, residual=True), 32, seeded()
    ).double()
    batch = sample_batch(CLEAN, 3, seeded(1))
    every = torch.ones(width, dtype=torch.bool), torch.ones(width, width, dtype=torch.bool)
    said = answer_ablated(model, batch.tokens, batch.query_positions, value_blocks=every[0], match_blocks=every[1])
    assert_near(said, model.answer(batch.tokens, batch.query_positions))


def test_what_cannot_be_ablated_is_said():
    batch = sample_batch(CLEAN, 2, seeded())
    deep = build_model(LinearMambaSpec(embed_dim=5, state_dim=3, num_layers=2), 32, seeded())
    with pytest.raises(ValueError, match="num_layers=1"):
        ablate_blocks(deep, batch)
    narrow = build_model(LinearMambaSpec(embed_dim=5, state_dim=3, conv_width=1), 32, seeded())
    with pytest.raises(ValueError, match="conv_width >= 2"):
        ablate_blocks(narrow, batch)
