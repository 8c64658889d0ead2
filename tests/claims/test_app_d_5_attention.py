"""App. D.5, Fig. 14-15: the recurrence is attention, and the convolution copies values and shifts keys."""

import math

import pytest
import torch

from closeness import assert_near
from recallscope.architectures.capabilities import one_hot_tokens, windows
from recallscope.architectures.mamba import LinearMambaSpec, MambaSpec
from recallscope.architectures.model import build_model
from recallscope.circuits.linear import designed_circuit, ideal_circuit
from recallscope.interp.attention import (
    attention_map,
    copy_dominance,
    copy_map,
    ideal_attention,
    joint_attention,
    score_attention,
    shift_dominance,
    shift_map,
)
from recallscope.interp.operators import effective_operators, rotate_model, token_operators
from recallscope.specs import parse_task
from recallscope.tasks.drawing import sample_batch

TASK = parse_task({"vocab_size": 32, "num_facts": 4, "filler": "zero"})


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_the_ideal_map_is_one_where_the_previous_token_is_asked_for():
    alpha = ideal_attention(torch.tensor([3, 9, 4, 8, 4, 3]))
    assert alpha.nonzero().tolist() == [[1, 5], [3, 4]]


def test_the_ideal_circuit_attends_as_it_should():
    batch = sample_batch(TASK, 5, seeded())
    alpha = attention_map(ideal_circuit(32), batch.tokens)[:, 0]
    assert torch.equal(alpha, ideal_attention(batch.tokens))
    scores = score_attention(alpha, batch)
    assert scores.hit_rate == 1
    assert scores.correlation == pytest.approx(1)


@pytest.mark.parametrize("width", [1, 2, 4])
def test_the_map_is_the_match_operator_between_windows(width):
    """α'_τt = ξ_τᵀ G_kq ξ_t, for any weights."""
    model = build_model(LinearMambaSpec(embed_dim=5, state_dim=3, conv_width=width), 12, seeded(), dtype=torch.float64)
    tokens = torch.randint(12, (2, 7), generator=seeded(1))
    xi = windows(one_hot_tokens(tokens, 12, dtype=torch.float64), width)
    (ops,) = token_operators(model)
    wanted = torch.einsum("bsx,xy,bty->bst", xi, ops.match_operator, xi).triu()
    assert_near(attention_map(model, tokens)[:, 0], wanted)


def test_joint_attention_does_not_depend_on_rotation_or_sign():
    model = designed_circuit(32, 16, 8, seeded()).double()
    tokens = sample_batch(TASK, 3, seeded(1)).tokens
    for seed in range(4):
        rotated = rotate_model(model, seeded(seed))
        assert_near(joint_attention(rotated, tokens), joint_attention(model, tokens))


def test_copy_and_shift_of_the_ideal_circuit_are_exact():
    """Fig. 15: x_tᵀ G_vv ξ_τ = 1 where x_t = x_τ, ξ_tᵀ G_kqᵀ ξ_τ = 1 where x_t = x_{τ-1}, and 0 elsewhere."""
    tokens = sample_batch(TASK, 4, seeded()).tokens
    ops = effective_operators(ideal_circuit(32))
    same = (tokens[:, :, None] == tokens[:, None, :]).float()
    assert torch.equal(copy_map(ops, tokens), same)
    shifted = torch.zeros_like(same)
    shifted[:, :, 1:] = same[:, :, :-1]
    assert torch.equal(shift_map(ops, tokens), shifted)
    for dominance in (copy_dominance(ops, tokens), shift_dominance(ops, tokens)):
        assert dominance.hit_rate == 1
        assert dominance.contrast == math.inf


@pytest.mark.parametrize(
    "switches",
    [{}, {"skip": False, "norm": "none"}, {"transition": "identity"}, {"delta_rank": "full", "conv_width": 4}],
    ids=str,
)
def test_full_mamba_is_attention_too_one_map_per_channel(switches):
    """ŷ_t = Σ_τ α_τt x̂_τ, plus the skip: unrolled products of Ā say all the scan says."""
    model = build_model(
        MambaSpec.model_validate({"embed_dim": 6, "state_dim": 4, **switches}), 12, seeded(), dtype=torch.float64
    )
    tokens = torch.randint(12, (3, 8), generator=seeded(1))
    trace = model.trace(tokens).layers[0]
    y_hat = torch.einsum("bdst,bsd->btd", attention_map(model, tokens).expand(-1, 12, -1, -1), trace.x_hat)
    if model.layers[0].mixer.D is not None:
        y_hat = y_hat + model.layers[0].mixer.D * trace.x_hat
    assert_near(y_hat, trace.y_hat)
