"""Bounds on the correlation of code words, and codes that reach them."""

import numpy as np
import pytest

from recallscope.theory.bounds import least_kurtosis, least_square, repelled_frame, tight_frame


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
