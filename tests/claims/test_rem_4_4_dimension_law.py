"""Rem 4.4: N D of the order of N_f log(V / delta) is what AR with failure delta asks for."""

import numpy as np

from recallscope.theory.bounds import huang_dims, least_dim_product
from recallscope.theory.laws.paper import large_context_law


def test_the_product_is_exactly_what_the_law_needs():
    for delta in (0.5, 0.1, 0.01, 1e-4):
        ND = float(least_dim_product(16, 1024, delta))
        p = large_context_law(vocab_size=1024, num_facts=16, embed_dim=ND, state_dim=1, task="ar")
        np.testing.assert_allclose(p, 1 - delta, atol=1e-12)


def test_it_grows_as_n_f_log_v_over_delta():
    V, delta = np.array([1e3, 1e6, 1e9, 1e12]), 1e-6
    ratio = least_dim_product(16, V, delta) / (16 * np.log(V / delta))
    assert np.all((ratio > 2) & (ratio < 5))
    np.testing.assert_allclose(least_dim_product(64, V, delta), 4 * least_dim_product(16, V, delta))


def test_the_printed_quantile_asks_for_too_much():
    """Departs: n_sigma² = 2 log(1/delta) is 9.21 at delta = .01; the quantile's square is 5.41."""
    assert least_dim_product(16, 1024, 0.01, printed=True) > least_dim_product(16, 1024, 0.01)
    np.testing.assert_allclose(least_dim_product(1, 1.0, 0.01, printed=True), 9.2103, atol=1e-4)
    np.testing.assert_allclose(least_dim_product(1, 1.0, 0.01), 5.4119, atol=1e-4)


def test_compressing_keys_too_saves_most_of_the_state():
    """App. J: the construction that compresses values only needs N = V/2, D = V/2 + log(V/2)."""
    D, N = huang_dims(1024)
    assert (N, round(float(D), 3)) == (512, 518.238)
    assert N * D > 400 * least_dim_product(16, 1024, 0.01)
