"""Lem 4.5: a state of S entries at b bits must hold N_f log V bits, up to what may be forgotten."""

import numpy as np

from recallscope.theory.bounds import bits_per_entry, information_bits, inverse_success_integral
from recallscope.theory.extremes import success_integral


def test_reference_values():
    np.testing.assert_allclose(information_bits(16, 1024, 0.01), 141.267761, atol=1e-6)
    np.testing.assert_allclose(information_bits(16, 1024, 0.01, form="printed"), 141.56, atol=1e-6)
    np.testing.assert_allclose(information_bits(16, 1024, 0.01, values="distinct"), 140.926165, atol=1e-6)
    np.testing.assert_allclose(information_bits(16, 1024, 0.5), 56.022564, atol=1e-6)
    np.testing.assert_allclose(information_bits(16, 1024, 0.5, form="printed"), 71, atol=1e-6)


def test_a_guesser_needs_no_state():
    """Guessing among V_v values fails with 1 - 1/V_v and must be allowed; the printed form forbids it for large N_f."""
    delta = 1 - 1 / 512
    np.testing.assert_allclose(information_bits(1000, 1024, delta), 0, atol=1e-6)
    assert information_bits(1000, 1024, delta, form="printed") > 16


def test_a_perfect_memory_needs_all_of_it():
    np.testing.assert_allclose(information_bits(16, 1024, 1e-12), 16 * 9, atol=1e-6)


def test_distinct_values_carry_a_little_less():
    assert information_bits(200, 1024, 0.01, values="distinct") < information_bits(200, 1024, 0.01)


def test_bits_per_useful_entry():
    table = {
        512: [0.3777, 0.3808, 0.2733, 0.2067],
        1024: [0.3794, 0.3920, 0.2865, 0.2193],
        50000: [0.3810, 0.4337, 0.3394, 0.2718],
    }
    for V, row in table.items():
        np.testing.assert_allclose(bits_per_entry([0.5, 0.9, 0.99, 0.999], V), row, atol=1e-4)
    np.testing.assert_allclose(bits_per_entry(np.linspace(0.5, 0.95, 46), 1024).max(), 0.420, atol=1e-3)
    assert np.all(bits_per_entry([0.5, 0.8, 0.99], 1e9) < 1 / (2 * np.log(2)))


def test_the_circuit_never_beats_the_bound():
    """Entries the circuit needs at capacity, times 32 bits, exceed the bound for every V and p."""
    for V in (64, 1024, 10**6):
        p = np.array([0.5, 0.9, 0.999])
        assert np.all(32 / bits_per_entry(p, V) > 1)


def test_inverse_of_the_success_integral():
    x = inverse_success_integral([0.01, 0.5, 0.99], 511)
    np.testing.assert_allclose(success_integral(x, 511), [0.01, 0.5, 0.99], atol=1e-10)
    assert np.isnan(inverse_success_integral(0.001, 511))  # below a fair lottery
