"""Alg. 2, Eq. 12-14: the state is a hash table, and the net operators turn it back into facts."""

import pytest
import torch

from closeness import assert_near
from recallscope.architectures.capabilities import one_hot_tokens, windows
from recallscope.architectures.mamba import LinearMambaSpec, MultiHeadSpec
from recallscope.architectures.model import build_model
from recallscope.circuits.codes import hash_matrix, sphere_code
from recallscope.circuits.linear import compressive_circuit, designed_circuit, ideal_circuit
from recallscope.interp.hash_table import hash_tables, ideal_table, invert_state, score_tables
from recallscope.interp.operators import effective_operators, rotate_model, strength, token_operators
from recallscope.interp.selectivity import measure_codes
from recallscope.interp.states import states_at
from recallscope.specs import parse_task
from recallscope.tasks.drawing import sample_batch

MODELS = [
    *(LinearMambaSpec(embed_dim=5, state_dim=3, conv_width=width) for width in (1, 2, 4)),
    *(
        MultiHeadSpec(embed_dim=6, state_dim=3, num_heads=2, head_pattern=pattern, conv_width=2)
        for pattern in ("MHA", "MQA", "MKA", "MVA")
    ),
]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def task_of(vocab_size=32, num_facts=4, **more):
    return parse_task({"vocab_size": vocab_size, "num_facts": num_facts, **more})


@pytest.mark.parametrize("spec", MODELS, ids=lambda s: getattr(s, "head_pattern", f"width{s.conv_width}"))
def test_the_inverted_state_answers_every_window(spec):
    """h_inv ξ_t is the output at t: V x (D_conv V) numbers hold all answers. Any weights, any rotation."""
    model = build_model(spec, 12, seeded(), dtype=torch.float64)
    tokens = torch.randint(12, (2, 7), generator=seeded(1))
    xi = windows(one_hot_tokens(tokens, 12, dtype=torch.float64), spec.conv_width)
    logits = model(tokens)
    for t in range(7):
        (state,) = states_at(model, tokens, t)
        h_inv = invert_state(token_operators(model), state)
        assert h_inv.shape == (2, 12, spec.conv_width * 12)
        assert_near(torch.einsum("bvw,bw->bv", h_inv, xi[:, t]), logits[:, t], terms=logits)


def test_h_is_one_where_facts_are():
    """Eq. 12: rows are values, columns are keys."""
    H = ideal_table(torch.tensor([[1, 3]]), torch.tensor([[6, 7]]), 8)
    wanted = torch.zeros(1, 8, 8)
    wanted[0, 6, 1] = wanted[0, 7, 3] = 1
    assert torch.equal(H, wanted)


def test_in_the_ideal_circuit_decoding_gives_the_pairs_that_were_read():
    """H'' = H plus the (value, key) neighbours between facts, which the circuit stores as well."""
    batch = sample_batch(task_of(), 5, seeded())
    tables = hash_tables(ideal_circuit(32), batch)
    between = ideal_table(batch.values[:, :-1], batch.keys[:, 1:], 32)
    assert torch.equal(tables.decoded, tables.ideal + between)
    assert torch.equal(tables.hashed, tables.decoded)  # E = F = 1: nothing is hashed


def test_the_circuit_decodes_as_printed_and_its_rotations_decode_alike():
    """Eq. 13-14: H' = (0 | I) h and H'' = EᵀH'Ẽ; Alg. 2 gives the same H'' for rotated weights."""
    E, F = sphere_code(12, 32, seeded()), hash_matrix(6, 12, seeded(1))
    model, batch = compressive_circuit(E, F), sample_batch(task_of(), 3, seeded(2))
    tables = hash_tables(model, batch)
    (state,) = states_at(model, batch.tokens, 7)
    assert_near(tables.hashed, state[:, 0, 12:])
    assert_near(tables.decoded, E.T @ tables.hashed @ (F @ E))
    rotated = hash_tables(rotate_model(model, seeded(3)), batch)
    assert_near(rotated.decoded, tables.decoded)
    assert not torch.allclose(rotated.hashed, tables.hashed, atol=0.1)


def test_at_any_time_the_table_has_the_facts_written_so_far():
    model = ideal_circuit(32)
    batch = sample_batch(task_of(), 4, seeded())
    for t, written in ((0, 0), (1, 1), (2, 1), (5, 3), (7, 4), (12, 4)):
        tables = hash_tables(model, batch, t)
        assert tables.keys.shape == (4, written)
        assert torch.equal(tables.ideal, ideal_table(batch.keys[:, :written], batch.values[:, :written], 32))


def test_where_keys_are_repeated_the_last_value_counts():
    task = task_of(kind="repeated", num_facts=3, key_repeats=2)
    batch = sample_batch(task, 4, seeded())
    half_way = hash_tables(ideal_circuit(32), batch, 7)  # the first key has been rewritten, the others not yet
    assert torch.equal(half_way.values[:, 0], batch.all_values[:, 1, 0])
    assert torch.equal(half_way.values[:, 1:], batch.all_values[:, 0, 1:])
    assert torch.equal(hash_tables(ideal_circuit(32), batch).values, batch.values)


def test_scores_of_the_ideal_circuit_are_exact():
    """Hits 1; the N_f - 1 neighbours between facts tie with them, so AUC is 1 - (N_f - 1) / 2 (V² - N_f)."""
    V, N_f = 32, 4
    model = ideal_circuit(V)
    tables = hash_tables(model, sample_batch(task_of(V, N_f), 6, seeded()))
    ops = effective_operators(model)
    scores = score_tables(tables, strength(ops), measure_codes(ops))
    assert scores.hit_rate == 1
    assert scores.auc == pytest.approx(1 - (N_f - 1) / 2 / (V**2 - N_f), abs=1e-12)
    assert scores.auc_facts == 1
    assert scores.noise == scores.predicted_noise == 0
    p, q = N_f / V**2, (2 * N_f - 1) / V**2  # share of ones in H and in H''
    wanted = (p - p * q) / (p * (1 - p) * q * (1 - q)) ** 0.5
    assert scores.correlation == pytest.approx(wanted, abs=1e-9)


def test_the_noise_of_a_compressed_table_is_the_predicted_one():
    """0.9 % ± 0.5 % above it over twenty draws of the codes, whose diagonals spread: 3 % leaves four deviations."""
    task = task_of(64, 8)
    model = designed_circuit(64, 32, 16, seeded())
    ops = effective_operators(model)
    scores = score_tables(hash_tables(model, sample_batch(task, 300, seeded(1))), strength(ops), measure_codes(ops))
    assert scores.noise == pytest.approx(scores.predicted_noise, rel=0.03)


def test_a_time_outside_of_the_sequence_is_refused():
    batch = sample_batch(task_of(), 1, seeded())
    with pytest.raises(ValueError, match="t=16 is not a position"):
        hash_tables(ideal_circuit(32), batch, 16)
