"""Laws of matrix memories and of full Mamba: reference values, limits, slow twins, moments of the delta rule."""

import numpy as np
import pytest

from recallscope.theory.law import find_law
from recallscope.theory.laws import ageing, sharing, sharing_step
from recallscope.theory.laws.ageing import delta_law, delta_moments, delta_rate, retention_law
from recallscope.theory.laws.full_mamba import bank_law, mask_law
from recallscope.theory.laws.matrix_memory import gated_law, least_squares_law, rank_bound, softmax_law, tight_codes
from recallscope.theory.laws.sharing import (
    mean_recall,
    noise_power,
    queries,
    recall_given_variances,
    sharing_codes,
    sharing_law,
    star_dimensions,
)
from recallscope.theory.problem import Problem

CELL = {"vocab_size": 512, "num_facts": 16, "embed_dim": 32, "state_dim": 8}
# Worked out by an independent program, to four digits (see `reference_noise`).
CLOSE = 5e-4
ROUNDED = 1.5e-3  # the last b = .2, which that program rounded over ages
MOVED = 1.5e-3  # by what is a rare event now, and was a little noise there
# V, N_f, N, D; gated MQAR, AR; least squares MQAR, AR; delta b = .05 MQAR, b = .2 MQAR, AR
MEMORIES = [
    (512, 16, 8, 32, 0.7107, 0.8078, 0.8952, 0.9388, 0.7117, 0.6695, 0.8173),
    (512, 16, 16, 16, 0.6990, 0.7940, 1, 1, 0.7093, 0.7205, 0.8415),
    (512, 16, 4, 64, 0.5761, 0.6763, 0.6319, 0.7224, 0.5553, 0.4253, 0.6115),
    (1024, 16, 8, 32, 0.6363, 0.7443, 0.8690, 0.9195, 0.6383, 0.6025, 0.7654),
    (512, 32, 16, 32, 0.7392, 0.8390, 0.9443, 0.9741, 0.7413, 0.7003, 0.8490),
    (512, 8, 8, 16, 0.7122, 0.7999, 1, 1, 0.7211, 0.7300, 0.8406),
]
# N, D, N_f, V, task; full-mask, full-nd, full-bank
FULL = [
    (8, 32, 16, 512, "mqar", 0.8554, 0.7107, 0.8923),
    (16, 32, 16, 512, "mqar", 0.9586, 0.9543, 0.9808),
    (16, 16, 16, 512, "mqar", 0.6244, 0.6990, 0.5563),
    (32, 32, 16, 512, "mqar", 0.9968, 0.9988, 0.9919),
    (8, 64, 32, 512, "mqar", 0.9468, 0.6661, 0.8822),
    (8, 64, 16, 1024, "mqar", 0.9821, 0.8801, 0.9691),
    (4, 24, 8, 256, "mqar", 0.8263, 0.6526, 0.8499),
    (8, 24, 8, 256, "mqar", 0.9391, 0.9177, 0.9697),
    (8, 32, 16, 512, "ar", 0.9106, 0.8078, 0.9405),
]
FINE = {"slot_nodes": 4, "norm_nodes": 12, "signal_nodes": 20, "residual_nodes": 6, "weight_nodes": 6}
FINER = FINE | {"norm_nodes": 40}  # with two banks the power of the noise varies more


def fields(V, N_f, N, D, task="mqar"):
    return {"vocab_size": V, "num_facts": N_f, "embed_dim": D, "state_dim": N, "task": task}


def without_ageing(V, N_f, N, D, **nodes):
    tasks = fields(V, N_f, N, D), fields(V, N_f, N, D, "ar")
    return [float(law(**task, **nodes)) for law in (gated_law, least_squares_law) for task in tasks]


def at_rates(V, N_f, N, D, **nodes):
    asked = (("mqar", 0.05), ("mqar", 0.2), ("ar", 0.2))
    return [float(delta_law(**fields(V, N_f, N, D, task), b=b, **nodes)) for task, b in asked]


def in_full_mamba(N, D, N_f, V, task, **nodes):
    return [float(law(**fields(V, N_f, N, D, task), **nodes)) for law in (mask_law, find_law("full-nd"), bank_law)]


@pytest.fixture
def reference_noise(monkeypatch):
    """The right value, repeated by the filler, as a little more noise for every query: so the references took it."""

    def win(noise, exact=False, norm_nodes=None, signal_nodes=None, residual_nodes=None, weight_nodes=None):
        given = sharing_step.Counts(norm_nodes, signal_nodes, residual_nodes, weight_nodes, weight_nodes, None, None)
        width = np.sqrt(1 + noise.repeats * noise.D_star / noise.n)
        return sharing_step._by_counts(np.stack(noise, axis=-1), width, given, exact)

    monkeypatch.setattr(sharing, "win_probability", win)


@pytest.mark.parametrize(("V", "N_f", "N", "D", *"abcdefg"), MEMORIES)
def test_reference_values_of_matrix_memories(reference_noise, V, N_f, N, D, a, b, c, d, e, f, g):
    assert without_ageing(V, N_f, N, D, **FINE) == pytest.approx([a, b, c, d], abs=CLOSE)
    found = at_rates(V, N_f, N, D, **FINE)
    assert found[::2] == pytest.approx([e, g], abs=CLOSE)
    assert found[1] == pytest.approx(f, abs=ROUNDED if N_f == 8 else CLOSE)


@pytest.mark.parametrize(("N", "D", "N_f", "V", "task", "mask", "nd", "bank"), FULL)
def test_reference_values_of_full_mamba(reference_noise, N, D, N_f, V, task, mask, nd, bank):
    assert in_full_mamba(N, D, N_f, V, task, **FINER) == pytest.approx([mask, nd, bank], abs=CLOSE)


def test_repeats_as_rare_events_are_near_repeats_as_noise():
    """Far off only where D is large against N; nowhere in AR, which has no filler. All else is as above."""
    for V, N_f, N, D, *values in MEMORIES:
        found, moved = without_ageing(V, N_f, N, D, **FINE), MOVED if D >= 4 * N else CLOSE
        assert found[::2] == pytest.approx(values[:4:2], abs=moved)
        assert found[1::2] == pytest.approx(values[1:4:2], abs=2e-4)
    for N, D, N_f, V, task, *values in FULL[:-1]:
        moved = MOVED if D >= 4 * N else CLOSE
        assert in_full_mamba(N, D, N_f, V, task, **FINE) == pytest.approx(values, abs=moved)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_the_quick_form_is_near_the_fine_one(every):
    """Nodes that a law chooses by itself, against those given, where the reference values are; and at the best rate."""
    for case in (row[:4] for row in MEMORIES[::every]):
        assert without_ageing(*case) == pytest.approx(without_ageing(*case, **FINE), abs=1e-3)
        assert float(delta_law(**fields(*case))) == pytest.approx(float(delta_law(**fields(*case), **FINE)), abs=1e-3)
    assert at_rates(*case) == pytest.approx(at_rates(*case, **FINE), abs=1e-3)
    for case in (row[:5] for row in FULL[::every]):
        assert in_full_mamba(*case) == pytest.approx(in_full_mamba(*case, **FINER), abs=1e-3)


def test_masks_gain_by_every_further_channel():
    """Without idle channels there is nothing to mask: expand = 1 is N D / n."""
    sizes = fields(256, 8, 4, 24)
    found = mask_law(**sizes, expand=[1, 2, 3, 4])
    np.testing.assert_allclose(found, [0.6526, 0.8263, 0.9236, 0.9621], atol=CLOSE + 1e-4)
    assert found[0] == pytest.approx(gated_law(**sizes), abs=1e-9)


def test_the_moments_of_the_delta_rule():
    """To the digits that an independent program printed; and its recurrence, which ours has in closed form."""
    found = delta_moments(8, 0.3, 4)
    expected = (
        [0.3, 0.28875, 0.277922, 0.2675],
        [0.09, 0.083554, 0.07757, 0.072016],
        [0.015506, 0.021331, 0.026699, 0.031644],
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=5.1e-7)
    N, b = 5.0, 0.7
    A, C, rho, s = N**2, N, 1 - b * (2 - b) / N, []
    for m in range(12):
        s.append((A + N * rho**m + C) / (N * (N + 2)))
        A, C = (x * (1 - 2 * b / N) + b**2 * s[-1] for x in (A, C))
    np.testing.assert_allclose(delta_moments(N, b, 12).mean_square, b**2 * np.array(s), rtol=1e-12)


@pytest.mark.parametrize(("N", "b", "n"), [(8, 1.0, 12), (4, 0.3, 10), (16, 0.5, 16)])
def test_the_moments_are_those_of_drawn_keys(N, b, n):
    """Means over 6000 draws within 5 standard errors, 3 n of them: a fresh seed fails once in 30,000."""
    rng = np.random.default_rng([N, n])
    keys = rng.standard_normal((6000, n, N))
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    weights = np.zeros((6000, n, N))  # what each write has left in the state
    for t in range(n):
        k = keys[:, t]
        weights[:, :t] -= b * np.einsum("bjn,bn->bj", weights[:, :t], k)[..., None] * k[:, None]
        weights[:, t] = b * k
    read = np.einsum("bjn,bin->bij", weights, keys)[:, ::-1, ::-1]  # newest first
    own = np.einsum("bii->bi", read)
    drawn = (own, own**2, (read**2).sum(-1) - own**2)
    for found, expected in zip(drawn, delta_moments(N, b, n), strict=True):
        error = found.std(axis=0) / np.sqrt(len(found))
        assert np.all(np.abs(found.mean(axis=0) - expected) <= 5 * error + 1e-12)


def slow(problem, variances, noise, *rate):
    """A law by slot and age over all ages, with as many nodes as each query needs."""
    asked, place = ageing._ages(queries(problem, slot_nodes=3), 32)
    N_star, D_star, lam = star_dimensions(*(np.asarray(v).reshape(-1, 1) for v in variances))
    n, spread = noise(asked, place, N_star, *rate)
    spread = np.minimum(spread, ageing.MOST_SPREAD)
    own = N_star * noise_power(asked, N_star, lam)[0] / n
    return mean_recall(asked, N_star, D_star, n, spread, weight_dim=own)


SOME = Problem(vocab_size=512, num_facts=16, embed_dim=[16, 32], state_dim=[16, 8])


def test_few_nodes_are_as_good_as_all_ages():
    rate = delta_rate(SOME)
    plain = slow(SOME, (*tight_codes(SOME), np.zeros(2)), ageing._delta_noise, 0.0, rate.reshape(-1, 1))
    np.testing.assert_allclose(delta_law(SOME), plain, atol=5e-4)
    codes = sharing_codes(SOME)
    lam, gamma = codes.leak_ratio.reshape(-1, 1), np.full((2, 1), 31 / 32)
    variances = (codes.key_variance, codes.value_variance, codes.leak)
    np.testing.assert_allclose(retention_law(SOME), slow(SOME, variances, ageing._faded_noise, lam, gamma), atol=1e-3)


def test_the_best_rate_is_found_without_the_law():
    """Against a fine search with the law itself, all ages: what is lost by the quick one is small."""
    fine = np.max([delta_law(SOME, b=b) for b in (0.02, 0.03, 0.05, 0.14, 0.2)], axis=0)
    lost = fine - delta_law(SOME)
    assert np.all(np.abs(lost) < 5e-4)


def test_the_best_rate_is_none_where_the_state_is_small():
    """N > (5/16) (N_f + 3) to first order: about 6 for 16 facts."""
    rate = delta_rate(vocab_size=512, num_facts=16, embed_dim=32, state_dim=[2, 4, 16])
    assert rate.tolist()[:2] == [ageing.LEAST_RATE] * 2
    assert rate[2] > ageing.LEAST_RATE
    few = delta_law(**CELL | {"state_dim": 4})
    assert few == gated_law(**CELL | {"state_dim": 4})


def test_limits_of_the_laws_are_other_laws():
    assert retention_law(**CELL, gamma=1.0) == sharing_law(**CELL)
    assert float(retention_law(**CELL, gamma=0.97)) == pytest.approx(0.397, abs=1e-3)
    assert delta_law(**CELL, b=1e-6) == gated_law(**CELL)
    assert delta_law(**CELL, b=1e-4) == pytest.approx(gated_law(**CELL), abs=2e-4)
    assert rank_bound(**CELL) == least_squares_law(**CELL, task="ar")
    assert softmax_law(**CELL) == 1
    readout = recall_given_variances(**CELL, key_variance=0.1, value_variance=0.03, leak=0.001)
    assert recall_given_variances(**CELL, key_variance=0.1, value_variance=0.03, leak=0.001, theta=1.0) == readout
    assert np.isfinite(retention_law(**CELL, gamma=0.3))


def test_least_squares_is_exact_up_to_the_state_and_a_ceiling_beyond():
    N_f = np.array([1, 8, 12, 16])
    p = least_squares_law(vocab_size=512, num_facts=N_f, embed_dim=16, state_dim=12)
    assert p.tolist()[:3] == [1, 1, 1]
    assert p[3] < 1
    sizes = {"vocab_size": 512, "num_facts": 16, "embed_dim": [16, 32, 64], "state_dim": [8, 8, 4]}
    ceiling = rank_bound(**sizes)
    for law in (gated_law, delta_law, least_squares_law, sharing_law):
        assert np.all(law(**sizes) <= ceiling)


def test_rates_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match=r"b=1.5 is outside"):
        delta_law(**CELL, b=1.5)
    with pytest.raises(ValueError, match="gamma=0"):
        retention_law(**CELL, gamma=0)
    with pytest.raises(ValueError, match="applies to one layer only"):
        find_law("delta")(**CELL, num_layers=2)
