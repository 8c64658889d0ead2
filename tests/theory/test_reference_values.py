"""Integrals against values worked out independently (V=1024, N_f=16, D=48, N=16 unless given)."""

import numpy as np

from recallscope.theory.extremes import max_moments, sqrt_two_log, success_integral, two_moment_law, typical_max
from recallscope.theory.laws.designed import designed_exact_law
from recallscope.theory.laws.paper import large_context_law

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


def test_two_moments_are_enough_to_a_few_thousandths():
    x, n = np.meshgrid(np.linspace(0.5, 8, 60), [31, 127, 511, 1023, 50_000])
    assert np.max(np.abs(success_integral(x, n) - two_moment_law(x, n))) < 0.006


def test_large_context_law_of_designed_models():
    close(large_context_law(**CELL, task="ar", weights="designed"), 0.880139)
    close(large_context_law(**CELL, weights="designed", printed=True), 0.640359)


def test_designed_exact_integral():
    close(designed_exact_law(**CELL, task="ar"), 0.713973)
    assert np.isnan(designed_exact_law(vocab_size=64, num_facts=4, embed_dim=8, state_dim=9))
