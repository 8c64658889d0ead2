"""A fit finds what was put in, and its intervals cover the truth."""

import numpy as np
import pytest
from pandas import DataFrame
from scipy.special import ndtr

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.collapse import collapsed, fit_collapse
from recallscope.analysis.compare import dimensions
from recallscope.analysis.table import CELL_FIELDS, as_table, rows_of
from recallscope.theory.extremes import max_moments
from recallscope.theory.laws.paper import inv_sigma
from recallscope.theory.problem import Problem

CELLS = [(D, N) for D in (8, 16, 24, 32, 48) for N in (2, 4, 8, 16) if N <= D]
SHARED = {"task": "mqar", "num_facts": 16, "length": 64, "model": "linear_mamba", "num_layers": 1}


def cells(a, b, form="phi", seeds=1, noise=None, sizes=CELLS, vocabularies=(512,)):
    """Cells that lie on the curve, or beside it by the noise of 400 queries a seed."""
    found = []
    for V in vocabularies:
        table = DataFrame(sizes, columns=["embed_dim", "state_dim"]).assign(**SHARED, vocab_size=V)
        for p, row in zip(collapsed(dimensions(table), a, b, form), rows_of(table), strict=True):
            values = np.full(seeds, p) if noise is None else noise.binomial(400, p, seeds) / 400
            found += [row | {"seed": seed, "test_accuracy": float(value)} for seed, value in enumerate(values)]
    return AccuracyGrid.from_runs(as_table(found), CELL_FIELDS, reduce="mean")


@pytest.mark.parametrize("form", ["phi", "two-moment"])
@pytest.mark.parametrize(("a", "b"), [(1.25, 2.75), (0.5, 3.4), (3.0, 2.0)])
def test_a_and_b_are_found_again(form, a, b):
    fit = fit_collapse(cells(a, b, form), np.random.default_rng(0), form=form, bootstrap=0)
    assert fit.a == pytest.approx(a, abs=1e-3)
    assert fit.b == pytest.approx(b, abs=1e-3)
    assert fit.max_error < 1e-4
    assert fit.cells == len(CELLS)


@pytest.mark.parametrize("form", ["phi", "two-moment"])
def test_intervals_cover_the_truth_and_shrink_with_the_noise(form):
    """One draw with a fixed seed; a 95 % interval misses one time in twenty, this seed does not."""
    noisy = cells(1.25, 2.75, form, seeds=3, noise=np.random.default_rng(1))
    fit = fit_collapse(noisy, np.random.default_rng(0), form=form, bootstrap=100)
    assert fit.a_interval[0] < 1.25 < fit.a_interval[1]
    assert fit.b_interval[0] < 2.75 < fit.b_interval[1]
    exact = fit_collapse(cells(1.25, 2.75, form, seeds=3), np.random.default_rng(0), form=form, bootstrap=30)
    assert np.ptp(exact.a_interval) < np.ptp(fit.a_interval) / 10


def test_equal_generators_give_equal_intervals():
    noisy = cells(1.25, 2.75, seeds=2, noise=np.random.default_rng(1))
    one, two = (fit_collapse(noisy, np.random.default_rng(7), bootstrap=20) for _ in range(2))
    assert one == two


def test_layers_count_through_their_states():
    """N_eff = Lambda N (Thm 4.6)."""
    wide = {"vocab_size": 512, "num_facts": 16, "embed_dim": 32}
    layers = dimensions(as_table([wide | {"state_dim": 4, "num_layers": 3}]))
    single = dimensions(as_table([wide | {"state_dim": 12}]))
    assert inv_sigma(layers, a=1.25) == inv_sigma(single, a=1.25)
    assert inv_sigma(single, a=1.25) == pytest.approx(np.sqrt(12 * 32 / (1.25 * 16 + 12)))


def test_the_two_moment_form_is_wider_by_the_variance_of_the_maximum():
    problem = Problem(vocab_size=[512], num_facts=16, embed_dim=32, state_dim=8)
    x, (mean, variance) = inv_sigma(problem, a=1.0), max_moments(511)
    expected = ndtr((x - mean) / np.sqrt(1 + variance))
    np.testing.assert_allclose(collapsed(problem, 1.0, float(mean), "two-moment"), expected)


def test_too_little_or_too_mixed_data_is_refused():
    with pytest.raises(ValueError, match="at least 4"):
        fit_collapse(cells(1, 3, sizes=CELLS[:3]), np.random.default_rng(0))
    with pytest.raises(ValueError, match="each vocab_size separately"):
        fit_collapse(cells(1, 3, vocabularies=(512, 1024)), np.random.default_rng(0))
