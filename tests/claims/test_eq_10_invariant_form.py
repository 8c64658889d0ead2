"""Eq. 9-11: a model is its operators; they do not depend on its rotation, and the circuit's have known blocks."""

import pytest
import torch

from closeness import assert_near
from recallscope.architectures.mamba import LinearMambaSpec, MambaSpec, MultiHeadSpec
from recallscope.architectures.model import build_model
from recallscope.circuits.codes import hash_matrix, orthonormal_rows, sphere_code
from recallscope.circuits.linear import (
    compressive_circuit,
    depth_circuit,
    designed_circuit,
    head_circuit,
    ideal_circuit,
)
from recallscope.interp.operators import (
    block_masses,
    circuit_closeness,
    effective_operators,
    fix_scale,
    invariant_output,
    nearest_circuit,
    rotate_model,
    strength,
    token_operators,
)

V = 12
LINEAR = [
    LinearMambaSpec(embed_dim=5, state_dim=3, conv_width=width, num_layers=layers, residual=residual)
    for width in (1, 2, 3, 4)
    for layers, residual in ((1, False), (1, True), (3, True))
]
HEADS = [
    MultiHeadSpec(embed_dim=6, state_dim=3, num_heads=heads, head_pattern=pattern, conv_width=width)
    for pattern in ("MHA", "MQA", "MKA", "MVA")
    for heads, width in ((1, 2), (3, 2), (2, 4))
]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def tokens_of(vocab_size=V, count=3, length=9):
    return torch.randint(vocab_size, (count, length), generator=seeded(1))


def about(spec):
    if isinstance(spec, LinearMambaSpec):
        return f"width{spec.conv_width}-layers{spec.num_layers}-{'residual' if spec.residual else 'plain'}"
    return f"{spec.head_pattern}-heads{spec.num_heads}-width{spec.conv_width}"


@pytest.mark.parametrize("spec", [*LINEAR, *HEADS], ids=about)
def test_the_operators_alone_give_the_output(spec):
    """Eq. 10, for every conv width, head pattern and depth; in float32 to 1e-5 of the largest logit."""
    tokens = tokens_of()
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-12)):
        model = build_model(spec, V, seeded(), dtype=dtype)
        wanted = model(tokens).detach()
        assert (invariant_output(model, tokens) - wanted).abs().max() < tolerance * wanted.abs().max()


def test_the_ideal_circuit_has_exactly_the_blocks_of_eq_11():
    (ops,) = token_operators(ideal_circuit(V))
    none, eye = torch.zeros(V, V), torch.eye(V)
    assert torch.equal(ops.value_operator, torch.cat((none, eye), dim=1))
    assert torch.equal(ops.match_operator, torch.cat((torch.cat((none, eye), dim=1), torch.cat((none, none), dim=1))))
    masses = block_masses(ops)
    assert (masses.g_vv, masses.g_kq) == (1.0, 1.0)
    assert strength(ops) == 1.0
    assert circuit_closeness(ops) == pytest.approx(1, abs=1e-12)


def test_a_compressive_circuit_has_the_gram_matrices_of_its_codes_in_these_blocks():
    E, F = sphere_code(8, 32, seeded()), hash_matrix(4, 8, seeded(1))
    (ops,) = token_operators(compressive_circuit(E, F))
    assert_near(ops.value_block, E.T @ E)
    assert_near(ops.match_block, E.T @ F.T @ F @ E)
    masses = block_masses(ops)
    assert (masses.g_vv, masses.g_kq) == (1.0, 1.0)


def test_closeness_is_one_for_circuits_and_the_circuit_can_be_read_off():
    """Whatever the rotation, E and F are found again, up to a rotation of their own: the logits are the same."""
    model = rotate_model(designed_circuit(32, 12, 6, seeded()).double(), seeded(1))
    (ops,) = token_operators(model)
    assert circuit_closeness(ops) == pytest.approx(1, abs=1e-9)
    found = nearest_circuit(ops, embed_dim=12, state_dim=6)
    again = compressive_circuit(found.E, found.F).double()
    tokens = tokens_of(32)
    wanted = model(tokens).detach() / strength(ops)
    assert (again(tokens) - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_closeness_is_small_for_a_model_drawn_at_random():
    (ops,) = token_operators(build_model(LinearMambaSpec(embed_dim=16, state_dim=8), 64, seeded()))
    assert circuit_closeness(ops) < 0.05


ROTATABLE = [spec for spec in (*LINEAR, *HEADS) if spec.conv_width > 1]


@pytest.mark.parametrize("spec", ROTATABLE, ids=about)
def test_rotations_change_the_weights_and_nothing_else(spec):
    """Sec. 3.2: the same logits, and the same operators once their common factor is fixed, to 1e-5."""
    model = build_model(spec, V, seeded(), dtype=torch.float64)
    rotated = rotate_model(model, seeded(5))
    tokens = tokens_of()
    assert_near(rotated(tokens), model(tokens))
    for l in range(len(model.layers)):
        for before, after in zip(token_operators(model, layer=l), token_operators(rotated, layer=l), strict=True):
            assert after.delay == before.delay
            a, b = fix_scale(before), fix_scale(after)
            for one, other in ((a.value_operator, b.value_operator), (a.match_operator, b.match_operator)):
                assert (one - other).abs().max() < 1e-5 * one.abs().max()
            assert strength(after) == pytest.approx(strength(before), rel=1e-6)
            assert circuit_closeness(after) == pytest.approx(circuit_closeness(before), rel=1e-6)
    before, after = effective_operators(model), effective_operators(rotated)
    assert_near(block_masses(after).match, block_masses(before).match)
    assert_near(block_masses(after).value, block_masses(before).value)
    assert not torch.allclose(rotated.E, model.E)


def test_the_factor_between_the_operators_is_really_free_sign_included():
    """Trained models end with either sign: without fixing the factor a comparison with the identity is void."""
    rotated = [rotate_model(designed_circuit(32, 12, 6, seeded()), seeded(seed)) for seed in range(8)]
    signs = {float(torch.trace(token_operators(model)[0].value_block).sign()) for model in rotated}
    assert signs == {1.0, -1.0}


def test_layers_stack_to_the_effective_hash():
    """Thm G.1: the keys of all layers together are those of the stacked F, and G_kq is their sum."""
    keys, values = sphere_code(12, 16, seeded()), sphere_code(10, 16, seeded(1))
    stacked = orthonormal_rows(8, 12, seeded(2))
    model = depth_circuit(keys, values, list(stacked.split(4)))
    ops = effective_operators(model)
    assert ops.Pi_k_in.shape[0] == 8
    gram = keys.T @ stacked.T @ stacked @ keys
    assert_near(ops.match_block[:16, :16] / ops.match_block[0, 0], gram / gram[0, 0])
    assert block_masses(ops).g_kq == pytest.approx(1)


@pytest.mark.parametrize("pattern", ["MHA", "MQA", "MKA", "MVA"])
def test_heads_of_a_circuit_stack_to_the_single_head(pattern):
    """Lem H.2-H.5: summed over heads the operators are those of the circuit each pattern is."""
    E, F = sphere_code(8, 32, seeded()), hash_matrix(4, 8, seeded(1))
    if pattern in ("MQA", "MKA"):  # values pass through D_in / M = 8 channels, which holds all of E
        model = head_circuit(pattern, E, [F, F], expand=2)
    else:
        model = head_circuit(pattern, E, [F, F], expand=1)
    ops = effective_operators(model)
    assert_near(ops.value_block / ops.value_block[0, 0], E.T @ E)
    wanted = E.T @ F.T @ F @ E
    assert_near(ops.match_block / ops.match_block[0, 0], wanted / wanted[0, 0])
    assert circuit_closeness(ops) == pytest.approx(1, abs=1e-5)


def test_full_mamba_is_told_to_have_none():
    model = build_model(MambaSpec(embed_dim=8, state_dim=4), V, seeded())
    with pytest.raises(ValueError, match="no fixed G_vv"):
        token_operators(model)
    with pytest.raises(ValueError, match="SiLU"):
        rotate_model(model, seeded())


def test_a_layer_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="0 <= layer < 1"):
        token_operators(ideal_circuit(V), layer=1)
