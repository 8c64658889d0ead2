"""The numbers behind the figures: curves, planned grids, laws over many cells."""

import numpy as np
import pytest
from scipy.special import ndtr

from recallscope.analysis.accuracy_grid import AccuracyGrid, law_grid, planned_cells, planned_grid
from recallscope.analysis.collapse import collapse_curve, fit_with_draws
from recallscope.analysis.compare import law_points
from recallscope.analysis.table import as_table
from recallscope.runs.grid import Grid
from recallscope.theory.extremes import sqrt_two_log
from recallscope.theory.law import find_law

GRID = Grid(
    {"task": {"vocab_size": 1024, "num_facts": 16}, "model": {"kind": "linear_mamba"}},
    axes={"embed_dim": [8, 16, 32, 48, 64], "state_dim": [2, 4, 8, 16, 32], "seed": [0]},
    skip=["state_dim > embed_dim"],
)


def dn_grid(a=1.25, b=3.2, count=None, noise=0.0):
    """Cells on Phi(x - b), or beside it by the noise."""
    generator = np.random.default_rng(3)
    found = []
    for D, N in [(D, N) for D in (8, 16, 32, 48) for N in (2, 4, 8, 16) if N <= D]:
        p = float(ndtr(np.sqrt(N * D / (a * 16 + N)) - b))
        fields = {"task": "mqar", "vocab_size": 1024, "num_facts": 16, "length": 64, "model": "linear_mamba"}
        p = float(np.clip(p + generator.normal(0, noise), 0, 1))
        found.append(fields | {"embed_dim": D, "state_dim": N, "seed": 0, "test_accuracy": p})
    return AccuracyGrid.from_runs(as_table(found[:count]))


def test_points_lie_where_the_given_a_puts_them():
    curve = collapse_curve(dn_grid(), 1.25, np.random.default_rng(0), bootstrap=10)
    assert curve.accuracy == pytest.approx(ndtr(curve.x - 3.2))
    assert sorted(set(curve.group)) == [2, 4, 8, 16]
    assert curve.printed == pytest.approx(ndtr(curve.line - sqrt_two_log(1024)))


def test_the_level_is_fitted_at_the_given_a_and_both_numbers_when_free():
    curve = collapse_curve(dn_grid(a=2.0, b=2.9), 2.0, np.random.default_rng(0), bootstrap=10)
    assert (curve.level.a, curve.level.b) == (2.0, pytest.approx(2.9, abs=1e-6))
    assert (curve.free.a, curve.free.b) == (pytest.approx(2.0, abs=1e-3), pytest.approx(2.9, abs=1e-3))
    assert curve.fitted == pytest.approx(ndtr(curve.line - 2.9), abs=1e-6)


def test_the_band_is_that_of_the_resampled_levels():
    grid = dn_grid(noise=0.03)
    curve = collapse_curve(grid, 1.25, np.random.default_rng(0), bootstrap=50)
    _, draws = fit_with_draws(grid, np.random.default_rng(0), bootstrap=50, noise_coeff=1.25)
    low, high = curve.band
    assert draws.shape == (50, 2)
    assert set(draws[:, 0]) == {1.25}
    assert np.all(low <= curve.fitted)
    assert np.all(curve.fitted <= high)
    assert low == pytest.approx(np.quantile(ndtr(curve.line - draws[:, 1:]), 0.025, axis=0))


def test_too_few_cells_are_shown_without_a_fit():
    curve = collapse_curve(dn_grid(count=3), 1.25, np.random.default_rng(0))
    assert len(curve.x) == 3
    assert (curve.fitted, curve.band, curve.level, curve.free) == (None, None, None, None)


def test_a_planned_grid_keeps_the_axes_it_was_planned_on_and_leaves_holes():
    rows = planned_cells(GRID).assign(test_accuracy=0.5, seed=0)
    rows = rows[(rows["embed_dim"] != 64) | (rows["state_dim"] != 2)]
    grid = planned_grid(GRID, rows)
    assert dict(grid.axes) == {"embed_dim": (8, 16, 32, 48, 64), "state_dim": (2, 4, 8, 16, 32)}
    assert np.isnan(grid.accuracy[4, 0])
    assert np.isnan(grid.accuracy[0, 3])  # N = 16 > D = 8
    assert np.nansum(grid.accuracy) == 0.5 * len(rows)
    assert grid.counts.sum() == len(rows)


def test_a_law_on_a_planned_grid_leaves_wide_states_empty():
    grid = law_grid(find_law("unified-mv"), GRID)
    D, N = (np.array(values) for values in grid.axes.values())
    assert np.array_equal(np.isnan(grid.accuracy), N > D[:, None])
    law = find_law("unified-mv")(vocab_size=1024, num_facts=16, embed_dim=64, state_dim=8)
    assert grid.accuracy[4, 2] == pytest.approx(float(law))


def test_all_cells_of_all_grids_weigh_alike():
    law = find_law("unified-mv")
    grids = {"few": dn_grid(count=2), "many": dn_grid()}
    points = law_points(law, grids)
    errors = [
        abs(m - p) for label in grids for m, p in zip(points.measured[label], points.predicted[label], strict=True)
    ]
    assert points.cells == sum(len(grid.measured) for grid in grids.values()) == len(errors)
    assert points.mean_error == pytest.approx(np.mean(errors))
    assert np.isnan(law_points(law, {}).mean_error)
