"""Closed forms and integrals against values worked out independently (V=1024, N_f=16, D=48, N=16 unless given)."""

import numpy as np
import pytest

from recallscope.theory.bounds import (
    bits_per_entry,
    huang_dims,
    information_bits,
    inverse_success_integral,
    jl_condition,
    jl_least_square,
    jl_least_state,
    least_dim_product,
)
from recallscope.theory.extremes import (
    max_moments,
    sqrt_two_log,
    success_integral,
    two_moment_law,
    typical_max,
)
from recallscope.theory.laws import designed_exact_law, large_context_law, unified_law
from recallscope.theory.noise import (
    effective_state,
    noise_coeff,
    printed_refined_denominator,
    refined_denominator,
)

CELL = {"vocab_size": 1024, "num_facts": 16, "embed_dim": 48, "state_dim": 16}


def close(value, expected, tolerance=1e-6):
    np.testing.assert_allclose(value, expected, rtol=0, atol=tolerance)


def test_levels_of_the_maximum():
    close(typical_max(1024), 3.123413)
    close(sqrt_two_log(1024), 3.723297)
    close(max_moments(1023), (3.247960, 0.123050))
    close(max_moments(511), (3.043310, 0.136725))


def test_moments_of_one_and_two_normals_are_known_exactly():
    close(max_moments([1, 2]), ([0, 1 / np.sqrt(np.pi)], [1, 1 - 1 / np.pi]), 1e-12)


def test_success_integral_and_its_two_moment_form():
    close(success_integral(4, 1023), 0.762027)
    close(two_moment_law(4, 1023), 0.761038)
    close(success_integral(0.0, [1, 9, 99]), [1 / 2, 1 / 10, 1 / 100], 1e-12)  # no signal: a fair lottery


@pytest.mark.parametrize(("task", "sqrt", "mv"), [("ar", 0.880139, 0.962098), ("mqar", 0.814741, 0.932594)])
def test_unified_law_of_trained_models(task, sqrt, mv):
    close(unified_law(**CELL, task=task), sqrt)
    close(unified_law(**CELL, task=task, level="mv"), mv)


def test_large_context_law_of_trained_models():
    close(large_context_law(**CELL, task="ar"), 0.999324)
    close(large_context_law(**CELL), 0.991761)
    close(large_context_law(**CELL, printed=True), 1.021789)


@pytest.mark.parametrize(("task", "sqrt", "mv"), [("ar", 0.608996, 0.809645), ("mqar", 0.397742, 0.633331)])
def test_unified_law_of_designed_models(task, sqrt, mv):
    close(unified_law(**CELL, task=task, weights="designed"), sqrt)
    close(unified_law(**CELL, task=task, weights="designed", level="mv"), mv)


def test_large_context_law_of_designed_models():
    close(large_context_law(**CELL, task="ar", weights="designed"), 0.880139)
    close(large_context_law(**CELL, weights="designed", printed=True), 0.640359)


def test_designed_exact_integral():
    close(designed_exact_law(**CELL, task="ar"), 0.713973)
    close(designed_exact_law(**CELL, task="ar", corrected=True), 0.677285)
    assert np.isnan(designed_exact_law(vocab_size=64, num_facts=4, embed_dim=8, state_dim=9))


def test_mha_as_its_proof_builds_it_beats_one_head_but_not_the_claimed_state():
    """Monte Carlo of the construction gave .562 (one head), .720 (MHA), .995 (one head with state M N)."""
    cell = {"vocab_size": 512, "num_facts": 16, "embed_dim": 64, "task": "ar", "corrected": True}
    single, mha = (
        designed_exact_law(**cell, state_dim=8),
        designed_exact_law(**cell, state_dim=8, num_heads=4),
    )
    claimed = designed_exact_law(**cell, state_dim=32)
    assert single < mha < claimed - 0.2
    assert abs(single - 0.562) < 0.02


def test_refined_denominators():
    close(refined_denominator(16, 8, 64, weights="trained"), 27.856406)
    close((refined_denominator(16, 8, 64, weights="trained") - 8) / 16, 1.241025)
    close((refined_denominator(16, 8, 64, weights="designed") - 8) / 16, 2.927051)
    close(printed_refined_denominator(16, 8), 37.797959)


def test_noise_coefficients_for_any_length():
    for task, weights, L, a in [
        ("ar", "designed", 33, 2), ("mqar", "designed", 64, 3), ("ar", "trained", 33, 1), ("mqar", "trained", 64, 1.25),
        ("mqar", "trained", 128, 1.75), ("mqar", "designed", 128, 5),
    ]:  # fmt: skip
        assert noise_coeff(16, L, task=task, weights=weights) == a


def test_jl_lemma():
    close(jl_least_square(1024, 16, task="ar"), (0.097597, 2910.797973))
    for V, N_f, L, D in [(1024, 16, 64, 5045), (512, 32, 128, 8198), (512, 16, 64, 4541)]:
        least = float(jl_least_square(V, N_f, length=L)[1])
        assert D == int(np.ceil(least))
        words = {"vocab_size": V, "num_facts": N_f, "length": L}
        assert jl_condition(**words, embed_dim=D, state_dim=D).feasible
        assert not jl_condition(**words, embed_dim=least * 0.999, state_dim=least * 0.999).feasible
        close(jl_least_state(**words, embed_dim=least), least, 1e-6 * least)
        assert least > V  # more than the uncompressed circuit of Thm 3.1 needs
    assert jl_least_state(vocab_size=1024, num_facts=16, embed_dim=64) == np.inf


def test_information_bound():
    close(information_bits(16, 1024, 0.01), 141.267761)
    close(information_bits(16, 1024, 0.01, form="printed"), 141.56)
    close(information_bits(16, 1024, 0.01, values="distinct"), 140.926165)
    close(information_bits(16, 1024, 0.5), 56.022564)
    close(information_bits(16, 1024, 0.5, form="printed"), 71)


def test_bits_per_entry():
    for V, row in {
        512: [0.3777, 0.3808, 0.2733, 0.2067],
        1024: [0.3794, 0.3920, 0.2865, 0.2193],
        50000: [0.3810, 0.4337, 0.3394, 0.2718],
    }.items():
        close(bits_per_entry([0.5, 0.9, 0.99, 0.999], V), row, 1e-4)
    grid = bits_per_entry(np.linspace(0.5, 0.95, 46), 1024)
    close(grid.max(), 0.420, 1e-3)
    assert np.all(bits_per_entry([0.5, 0.8, 0.99], 10**9) < 1 / (2 * np.log(2)))


def test_inverse_of_the_success_integral():
    x = inverse_success_integral([0.01, 0.5, 0.99], 511)
    close(success_integral(x, 511), [0.01, 0.5, 0.99], 1e-10)
    assert np.isnan(inverse_success_integral(0.001, 511))  # below a fair lottery


def test_dimension_law():
    close(least_dim_product(16, 1024, 0.01), 16 * (3.7232974 + 2.3263479) ** 2, 1e-4)
    assert least_dim_product(16, 1024, 0.01, printed=True) > least_dim_product(16, 1024, 0.01)
    D, N = huang_dims(1024)
    assert N == 512
    close(D, 512 + np.log(512))


def test_effective_state_of_layers():
    assert effective_state(6, 64, 2, hashes="printed") == 12
    assert effective_state(40, 64, 2) == 64  # rank
    assert effective_state(40, 64, 2, hashes="printed") == 80
    close(1 / effective_state(8, 64, 4, hashes="independent"), 1 / 32 + 0.75 / 64, 1e-12)
    assert effective_state(80, 64, 1) == 80
