"""Rem F.3: how keys and values share a model's dimensions, and which law its codes obey."""

import pytest
from subjects import SMALL, seeded

from recallscope.circuits.linear import designed_circuit, ideal_circuit, selective_circuit
from recallscope.interp.operators import effective_operators
from recallscope.interp.selectivity import check_variances, measure_codes, measure_selectivity, welch_variance
from recallscope.theory.laws.sharing import sharing_codes


def test_the_ideal_circuit_is_perfectly_selective():
    ops = effective_operators(ideal_circuit(32))
    codes = measure_codes(ops)
    assert (codes.key_variance, codes.value_variance, codes.leak, codes.key_spread, codes.value_spread) == (0,) * 5
    found = measure_selectivity(ops, embed_dim=32, state_dim=32)
    for code in (found.embedding, found.hashed):
        assert code.key_dim == pytest.approx(15)  # token 0 is no key
        assert code.value_dim == pytest.approx(16)
        assert code.norm_ratio == pytest.approx(1)
        assert code.angles == pytest.approx([90.0] * 15)
        assert code.overlap == pytest.approx(0, abs=1e-12)


def test_a_hard_split_keeps_keys_and_values_apart():
    """Keys in N dimensions, values in the other D - N: orthogonal in E, and nothing of the values in the hash."""
    model = selective_circuit(64, 24, 8, seeded(), split="hard", key_norm=0.25)
    ops = effective_operators(model)
    found = measure_selectivity(ops, embed_dim=24, state_dim=8)
    assert found.value_share == pytest.approx(0, abs=1e-4)
    assert min(found.embedding.angles) > 89
    assert found.embedding.key_dim == pytest.approx(8, rel=0.05)
    assert found.embedding.value_dim == pytest.approx(16, rel=0.05)
    assert found.embedding.norm_ratio == pytest.approx(0.25, rel=1e-3)
    assert measure_codes(ops).leak == pytest.approx(0, abs=1e-9)
    assert found.hashed.value_dim == 0  # values are not hashed at all: nothing to be at an angle with
    assert (found.hashed.angles, found.hashed.overlap) == ((), 0)


def test_tight_and_random_codes_are_told_apart():
    """Welch: (n - d) / (d (n - 1)) for tight frames; 1/d for random ones."""
    tight = measure_codes(effective_operators(selective_circuit(128, 32, 16, seeded(), split="hard", frames="tight")))
    loose = measure_codes(effective_operators(selective_circuit(128, 32, 16, seeded(), split="hard", frames="random")))
    assert tight.key_variance == pytest.approx(welch_variance(16, 64), rel=0.02)
    assert tight.value_variance == pytest.approx(welch_variance(16, 64), rel=0.02)
    assert loose.key_variance == pytest.approx(1 / 16, rel=0.1)


def test_a_designed_model_has_random_codes_and_a_trained_one_tight_frames(trained):
    """After a second of training the key code is nearer to a tight frame than to a random one."""
    designed = measure_codes(effective_operators(designed_circuit(64, 32, 16, seeded())))
    key, value = check_variances(designed, SMALL, embed_dim=32, state_dim=16)
    assert (key.nearest, value.nearest) == ("random", "random")
    codes = measure_codes(effective_operators(trained))
    key, value = check_variances(codes, SMALL, embed_dim=32, state_dim=16)
    assert key.nearest != "random"
    assert key.welch < key.measured < key.random
    assert value.measured < value.random
    assert codes.leak < codes.key_variance * codes.value_variance  # a (value, key) pair disturbs less than a fact
    predicted = sharing_codes(vocab_size=64, num_facts=4, embed_dim=32, state_dim=16)
    share = measure_selectivity(effective_operators(trained), embed_dim=32, state_dim=16).value_share
    assert abs(share - float(predicted.share)) < 0.3
