"""Seed noise: its size, and how often identical models are told apart."""

import numpy as np
import pytest
from scipy.optimize import least_squares

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.collapse import A_BOUNDS, collapsed, curve_misses, fit_collapse, fit_curves
from recallscope.analysis.compare import dimensions
from recallscope.analysis.seed_noise import ends_of, interval, mean_gap, pooled_noise, seed_noise
from recallscope.analysis.table import accuracies, as_table
from recallscope.studies.dn_parts import coefficient_ratio

SPREAD = 0.05  # in units of sqrt(p (1 - p))


def runs(p, seeds, generator, **fields):
    """Accuracies of runs that differ in the seed alone."""
    return p + SPREAD * np.sqrt(p * (1 - p)) * generator.standard_normal(seeds)


def row(accuracy, D=32, N=8, seed=0, **fields):
    sizes = {"task": "mqar", "vocab_size": 512, "num_facts": 16, "length": 64, "model": "linear_mamba", "num_layers": 1}
    return sizes | {"embed_dim": D, "state_dim": N, "seed": seed, "test_accuracy": accuracy} | fields


def dn_cells(a, b, generator=None, seeds=1, cells=None, **fields):
    cells = cells or [(D, N) for D in (8, 16, 32, 48, 64) for N in (2, 4, 8, 16, 32) if N <= D]
    p = collapsed(dimensions(as_table(row(0.0, *cell) for cell in cells)), a, b, "phi")
    noise = (0.0 if generator is None else runs(q, seeds, generator) - q for q in p)
    rows = [
        row(float(np.clip(accuracy, 0, 1)), *cell, seed=seed, **fields)
        for cell, q, moved in zip(cells, p, noise, strict=True)
        for seed, accuracy in enumerate(np.broadcast_to(q + moved, seeds))
    ]
    return AccuracyGrid.from_runs(as_table(rows), reduce="mean")


def test_the_spread_of_seeds_is_found_and_cells_of_one_seed_tell_nothing():
    generator = np.random.default_rng(0)
    several = [runs(p, 3, generator) for p in np.linspace(0.1, 0.95, 400)]
    noise = pooled_noise([*several, np.array([0.3]), np.array([0.9])])
    assert noise.degrees == 800
    assert noise.coefficient**0.5 == pytest.approx(SPREAD, rel=0.1)  # 4 standard errors of 800 degrees of freedom
    unknown = pooled_noise([np.array([0.3]), np.array([0.9])])
    assert unknown.degrees == 0
    assert "no cell has two seeds" in str(unknown)


def test_only_runs_that_differ_in_nothing_else_are_put_together():
    assert seed_noise(as_table([row(0.5), row(0.7, seed=1, batch_size=32)])).degrees == 0
    assert seed_noise(as_table([row(0.5), row(0.7, seed=1), row(0.9, 64)])).degrees == 1


@pytest.mark.parametrize(("cells", "seeds", "beside"), [(2, 1, 4), (9, 1, 4), (9, 3, 1), (12, 2, 2)])
def test_identical_models_are_told_apart_in_at_most_five_percent_of_cases(cells, seeds, beside):
    """Of 2000 stores at most 5 % and 4 standard errors: one false alarm of this test in 30,000."""
    generator = np.random.default_rng(cells)
    alarms, stores = 0, 2000
    for _ in range(stores):
        p = np.linspace(0.25, 0.9, cells)
        # three cells stand beside one and the same, as several numbers of heads beside one single head
        found = {("one", i): runs(p[i - i % 3], seeds, generator) for i in range(cells)}
        found |= {("two", i): runs(p[i], beside, generator) for i in range(0, cells, 3)}
        pairs = [(("one", i), ("two", i - i % 3)) for i in range(cells)]
        noise = pooled_noise([*found.values(), runs(0.5, 5, generator)])
        low, high = mean_gap(pairs, found, noise).interval
        alarms += not low <= 0 <= high
    assert alarms / stores <= 0.05 + 4 * np.sqrt(0.05 * 0.95 / stores)


def test_two_cells_that_happen_to_agree_have_an_interval_as_wide_as_seeds_make_it():
    cells = {"a": np.array([0.50, 0.53]), "b": np.array([0.52, 0.49]), "c": np.array([0.51]), "d": np.array([0.505])}
    gap = mean_gap([("a", "c"), ("b", "d")], cells, pooled_noise(cells.values()))
    assert np.ptp(gap.gaps) < 0.006
    assert np.ptp(gap.interval) > 0.05


@pytest.mark.slow
def test_the_interval_of_a_ratio_of_identical_models_contains_one():
    """At most 5 % of 60 and 4 standard errors: 9 misses."""
    generator = np.random.default_rng(3)
    missed = 0
    for _ in range(60):
        first, second = (dn_cells(1.25, 2.9, generator, seeds=2, model=model) for model in ("full", "linear"))
        low, high = coefficient_ratio(first, second, generator, bootstrap=200).interval
        missed += not low <= 1 <= high
    assert missed <= 9


def test_noise_of_seeds_widens_the_intervals_of_a_fit():
    exact = dn_cells(1.25, 2.9, seeds=2)
    spread = dn_cells(1.25, 2.9, np.random.default_rng(0), seeds=2).noise
    none, some = (fit_collapse(exact, np.random.default_rng(0), noise=noise) for noise in (None, spread))
    assert np.ptp(none.a_interval) < 1e-6
    assert np.ptp(some.a_interval) > 0.02
    assert some.a == none.a == pytest.approx(1.25, abs=1e-6)


def test_an_end_that_the_data_do_not_bound_is_unbounded():
    """Accuracies that do not rise with the dimensions: the larger a, the flatter the curve."""
    rows = [row(accuracy, D, 8) for D, accuracy in ((16, 0.5), (24, 0.52), (32, 0.49), (48, 0.51), (64, 0.5))]
    fit = fit_collapse(AccuracyGrid.from_runs(as_table(rows)), np.random.default_rng(0), bootstrap=100)
    assert fit.a_interval[1] == np.inf
    assert interval(*fit.a_interval).endswith(", unbounded]")
    assert str(round(A_BOUNDS[1], 1)) not in interval(*fit.a_interval)
    assert interval(float("nan"), float("nan")) == "(no interval)"
    assert ends_of(np.array([1.0] * 90 + [np.inf] * 10)) == (1.0, np.inf)


@pytest.mark.parametrize("form", ["phi", "two-moment"])
def test_many_fits_at_once_are_the_fits_one_by_one(form):
    """The twin: scipy's own least squares, and derivatives by differences."""
    cells = dn_cells(1.0, 3.0).cells
    problem, generator = dimensions(cells), np.random.default_rng(0)
    accuracy = accuracies(cells)
    measured = np.clip(accuracy + 0.03 * generator.standard_normal((20, len(cells))), 0, 1)
    found, cost = fit_curves(problem, measured, np.tile((1.0, 3.0), (20, 1)), form)
    for (a, b), least, y in zip(found, cost, measured, strict=True):
        plain = least_squares(lambda v, y=y: collapsed(problem, np.exp(v[0]), v[1], form) - y, (0.0, 3.0), xtol=1e-12)
        assert (a, b) == pytest.approx((np.exp(plain.x[0]), plain.x[1]), rel=1e-4)
        assert least == pytest.approx(2 * plain.cost, rel=1e-8)
    values, step = np.array([[0.2, 2.8]]), 1e-6
    slopes = curve_misses(problem, values, measured[:1], form)[1]
    for index in range(2):
        moved = values.copy()
        moved[0, index] += step
        by_difference = (
            curve_misses(problem, moved, measured[:1], form)[0] - curve_misses(problem, values, measured[:1], form)[0]
        ) / step
        np.testing.assert_allclose(slopes[..., index], by_difference, atol=1e-5)
