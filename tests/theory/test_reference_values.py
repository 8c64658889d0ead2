"""Integrals against values worked out independently (V=1024, N_f=16, D=48, N=16 unless given), and bounds on codes."""

import numpy as np
import pytest

from recallscope.theory.bounds import least_kurtosis, least_square, repelled_frame, tight_frame
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


def moments(words: np.ndarray) -> tuple[float, float]:
    """Mean square and kurtosis of the inner products of different words."""
    products = (words @ words.T)[~np.eye(len(words), dtype=bool)]
    square = float((products**2).mean())
    return square, float((products**4).mean()) / square**2


@pytest.mark.parametrize(("dim", "count"), [(4, 64), (8, 128), (16, 256), (3, 5)])
def test_no_code_is_below_the_bounds(dim: int, count: int) -> None:
    """Bounds of all codes, for drawn ones; of the kurtosis, times the mean square², for any code."""
    generator = np.random.default_rng(dim)
    drawn = generator.standard_normal((count, dim))
    for words in (drawn / np.linalg.norm(drawn, axis=1, keepdims=True), tight_frame(dim, count, generator)):
        square, kurtosis = moments(words)
        assert square >= least_square(dim, count) - 1e-12
        fourth = (3 * count / (dim * (dim + 2)) - 1) / (count - 1)
        assert kurtosis * square**2 >= fourth - 1e-12


def test_tight_frames_reach_the_second_order_and_repelled_ones_the_fourth() -> None:
    generator = np.random.default_rng(0)
    frame, repelled = tight_frame(8, 64, generator), repelled_frame(8, 64, generator)
    for words in (frame, repelled):
        assert moments(words)[0] == pytest.approx(least_square(8, 64), rel=1e-3)
    assert moments(frame)[1] > 1.1 * least_kurtosis(8, 64)
    assert moments(repelled)[1] == pytest.approx(least_kurtosis(8, 64), rel=5e-3)
    assert least_kurtosis(16, 256) == pytest.approx(17 / 9)


def test_orthogonal_words_and_endless_codes_are_the_limits() -> None:
    assert least_square(8, 8) == least_square(8, 4) == 0
    assert least_kurtosis(8, 10**9) == pytest.approx(3 * 8 / 10, rel=1e-6)
    assert least_kurtosis(32, 256) == 1
