"""Thm 4.2: p = mean over queries of Phi(sqrt(N D / n(t)) - sqrt(2 log V)), n(t) = N_f/2 + t/4."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtr

from recallscope.theory.laws.paper import large_context_law

CELL = {"vocab_size": 1024, "num_facts": 16, "embed_dim": 48, "state_dim": 16}


def test_reference_values():
    np.testing.assert_allclose(large_context_law(**CELL, task="ar"), 0.999324, atol=1e-6)
    np.testing.assert_allclose(large_context_law(**CELL), 0.991761, atol=1e-6)


def test_the_law_written_as_a_loop():
    V, N_f, D, N, L = 512, 8, 20, 10, 48
    b = np.sqrt(2 * np.log(V))
    slots = [ndtr(np.sqrt(N * D / (N_f / 2 + (2 * N_f + 2 * g) / 4)) - b) for g in range((L - 2 * N_f) // 2)]
    fields = {"vocab_size": V, "num_facts": N_f, "embed_dim": D, "state_dim": N, "length": L}
    np.testing.assert_allclose(large_context_law(**fields), np.mean(slots), atol=1e-14)


def test_the_printed_sum_is_not_a_probability():
    """Departs: L - 2 N_f + 1 terms over L - 2 N_f; tends to 33/32 for L = 64, N_f = 16."""
    np.testing.assert_allclose(large_context_law(**CELL, printed=True), 1.021789, atol=1e-6)
    big = CELL | {"embed_dim": 10**6}
    np.testing.assert_allclose(large_context_law(**big, printed=True), 33 / 32, atol=1e-12)
    assert large_context_law(**big) == 1


@given(
    N_f=st.integers(1, 64), D=st.integers(1, 256), N=st.integers(1, 256), half=st.integers(70, 10_000),
    task=st.sampled_from(["ar", "mqar"]), weights=st.sampled_from(["trained", "designed"]),
)  # fmt: skip
def test_monotone_in_everything(N_f, D, N, half, task, weights):
    def p(**changes):
        fields = {"vocab_size": 2 * half, "num_facts": N_f, "embed_dim": D, "state_dim": N} | changes
        return float(large_context_law(**fields, task=task, weights=weights))

    here = p()
    assert 0 <= here <= 1
    assert p(embed_dim=D + 1) >= here
    assert p(state_dim=N + 1) >= here
    assert p(num_facts=N_f + 1) <= here
    assert p(vocab_size=2 * half + 2) <= here


@pytest.mark.parametrize("task", ["ar", "mqar"])
def test_only_the_product_of_dimensions_matters(task):
    D, N = np.array([12, 24, 36, 48, 96]), np.array([96, 48, 32, 24, 12])
    p = large_context_law(vocab_size=512, num_facts=16, embed_dim=D, state_dim=N, task=task)
    np.testing.assert_allclose(p, p[0], atol=1e-14)
