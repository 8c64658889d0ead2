"""The numbers behind the figures: curves, planned grids, the ladder, slopes against m_V, laws over many cells."""

import numpy as np
import pytest
from scipy.special import ndtr

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.collapse import fit_with_draws
from recallscope.analysis.collapse_curve import collapse_curve
from recallscope.analysis.findings.vocabulary import as_predicted
from recallscope.analysis.ladder import LADDER, ladder, rung_of
from recallscope.analysis.law_points import law_points
from recallscope.analysis.planned import law_grid, planned_grid, planned_rows
from recallscope.analysis.vocabulary_slopes import vocabulary_slopes
from recallscope.paper import claim
from recallscope.sweeps.paper_grids import EXPERIMENTS
from recallscope.theory.extremes import sqrt_two_log, typical_max
from recallscope.theory.law import find_law

PART = next(part for part in EXPERIMENTS["dn-grid"].parts["small"] if part.label == "linear MQAR (i)")


def dn_rows(a=1.25, b=3.2, seeds=1, V=1024):
    """Cells that lie on Phi(x - b) exactly."""
    found = []
    for D, N in [(D, N) for D in (8, 16, 32, 48) for N in (2, 4, 8, 16) if N <= D]:
        p = float(ndtr(np.sqrt(N * D / (a * 16 + N)) - b))
        words = {"task": "mqar", "vocab_size": V, "num_facts": 16, "length": 64, "model": "linear", "num_layers": 1}
        found += [words | {"embed_dim": D, "state_dim": N, "seed": s, "test_accuracy": p} for s in range(seeds)]
    return found


def test_points_lie_where_the_given_a_puts_them():
    curve = collapse_curve(dn_rows(), 1.25, np.random.default_rng(0), bootstrap=10)
    assert curve.accuracy == pytest.approx(ndtr(curve.x - 3.2))
    assert sorted(set(curve.group)) == [2, 4, 8, 16]
    assert curve.printed == pytest.approx(ndtr(curve.line - sqrt_two_log(1024)))


def test_the_level_is_fitted_at_the_given_a_and_both_numbers_when_free():
    curve = collapse_curve(dn_rows(a=2.0, b=2.9), 2.0, np.random.default_rng(0), bootstrap=10)
    assert (curve.level.a, curve.level.b) == (2.0, pytest.approx(2.9, abs=1e-6))
    assert (curve.free.a, curve.free.b) == (pytest.approx(2.0, abs=1e-3), pytest.approx(2.9, abs=1e-3))
    assert curve.fitted == pytest.approx(ndtr(curve.line - 2.9), abs=1e-6)


def test_the_band_is_that_of_the_resampled_levels():
    noise = np.random.default_rng(3)
    rows = [row | {"test_accuracy": np.clip(row["test_accuracy"] + noise.normal(0, 0.03), 0, 1)} for row in dn_rows()]
    curve = collapse_curve(rows, 1.25, np.random.default_rng(0), bootstrap=50)
    axes = ("embed_dim", "state_dim")
    _, draws = fit_with_draws(rows, np.random.default_rng(0), axes=axes, bootstrap=50, noise_coeff=1.25)
    low, high = curve.band
    assert draws.shape == (50, 2)
    assert set(draws[:, 0]) == {1.25}
    assert np.all(low <= curve.fitted)
    assert np.all(curve.fitted <= high)
    assert low == pytest.approx(np.quantile(ndtr(curve.line - draws[:, 1:]), 0.025, axis=0))


def test_too_few_cells_are_shown_without_a_fit():
    curve = collapse_curve(dn_rows()[:3], 1.25, np.random.default_rng(0))
    assert len(curve.x) == 3
    assert (curve.fitted, curve.band, curve.level, curve.free) == (None, None, None, None)


def test_a_planned_grid_keeps_the_axes_of_its_part_and_leaves_holes():
    rows = [row | {"test_accuracy": 0.5, "seed": 0} for row in planned_rows(PART)]
    rows = [row for row in rows if (row["embed_dim"], row["state_dim"]) != (64, 2)]
    grid = planned_grid(PART, rows)
    assert dict(grid.axes) == {"embed_dim": (8, 16, 32, 48, 64), "state_dim": (2, 4, 8, 16, 32)}
    assert np.isnan(grid.accuracy[4, 0])
    assert np.isnan(grid.accuracy[0, 3])  # N = 16 > D = 8
    assert np.nansum(grid.accuracy) == 0.5 * len(rows)
    assert grid.counts.sum() == len(rows)


def test_a_law_on_a_planned_grid_leaves_wide_states_empty():
    grid = law_grid(find_law("unified-mv"), PART)
    D, N = (np.array(values) for values in grid.axes.values())
    assert np.array_equal(np.isnan(grid.accuracy), N > D[:, None])
    law = find_law("unified-mv")(vocab_size=1024, num_facts=16, embed_dim=64, state_dim=8)
    assert grid.accuracy[4, 2] == pytest.approx(float(law))


def ladder_rows():
    part = EXPERIMENTS["minimality"].parts["small"][0]
    cells = {tuple(cell.words.items()): cell for cell in part.grid.cells()}
    return [{**cell.words, "test_accuracy": 0.9 + 0.02 * cell.words["seed"]} for cell in cells.values()]


def test_every_rung_of_the_paper_is_recognised():
    """Tab. 8: six rungs, five seeds each."""
    rungs = ladder(ladder_rows())
    assert [rung.name for rung in rungs] == list(LADDER)
    assert all(rung.accuracies == pytest.approx((0.9, 0.92, 0.94, 0.96, 0.98)) for rung in rungs)
    assert rungs[0].mean == pytest.approx(0.94)
    assert rungs[0].spread == pytest.approx(np.std([0.9, 0.92, 0.94, 0.96, 0.98]))


def test_a_width_that_is_no_rung_is_refused():
    row = {"transition": "identity", "gate": False, "activation": "none", "conv_width": 3, "seed": 0}
    with pytest.raises(ValueError, match="conv_width=3"):
        rung_of(row)


def vocab_rows(slope, sizes=(512, 1024, 2048, 4096), length=64, noise=0.0, generator=None):
    found = []
    for V in sizes:
        z = 4.0 - slope * float(typical_max(V)) + (generator.normal(0, noise) if generator else 0)
        found.append(
            {"task": "mqar", "vocab_size": V, "num_facts": length // 4, "length": length, "model": "linear",
             "embed_dim": 32, "state_dim": 16, "seed": 0, "test_accuracy": float(ndtr(z))}
        )  # fmt: skip
    return found


def test_slopes_are_found_again_for_every_length():
    one, two = vocabulary_slopes(vocab_rows(1.2) + vocab_rows(1.5, length=128))
    assert (one.length, two.length) == (64, 128)
    assert (one.slope, two.slope) == (pytest.approx(1.2), pytest.approx(1.5))
    assert one.intercept == pytest.approx(4.0)
    assert one.slope_error == pytest.approx(0, abs=1e-6)


def test_the_standard_error_is_the_spread_of_slopes():
    """2000 noisy lines: their standard error agrees with the spread of the slopes within 10 % (it strays by 2 %)."""
    generator = np.random.default_rng(0)
    sizes = (512, 1024, 2048, 4096, 8192, 16384)
    found = [vocabulary_slopes(vocab_rows(1.2, sizes, noise=0.1, generator=generator))[0] for _ in range(2000)]
    spread = np.std([line.slope for line in found])
    assert np.sqrt(np.mean([line.slope_error**2 for line in found])) == pytest.approx(spread, rel=0.1)


def test_perfect_cells_have_no_normal_inverse_and_are_left_out():
    rows = vocab_rows(1.2)
    rows[0]["test_accuracy"] = 1.0
    (line,) = vocabulary_slopes(rows)
    assert np.isnan(line.normal_inverse[0])
    assert line.slope == pytest.approx(1.2)
    (short,) = vocabulary_slopes(rows[:2])
    assert np.isnan(short.slope)


def test_all_cells_of_all_grids_weigh_alike():
    law = find_law("unified-mv")
    few, many = dn_rows()[:2], dn_rows()
    grids = {"few": AccuracyGrid.from_runs(few), "many": AccuracyGrid.from_runs(many)}
    points = law_points(law, grids)
    errors = [
        abs(m - p) for label in grids for m, p in zip(points.measured[label], points.predicted[label], strict=True)
    ]
    assert points.cells == len(few) + len(many) == len(errors)
    assert points.mean_error == pytest.approx(np.mean(errors))
    assert np.isnan(law_points(law, {}).mean_error)


def test_the_slopes_that_a_soft_selective_law_predicts_at_the_papers_sizes() -> None:
    """The note to Fig. 12 gives them; nothing is fitted."""
    (part,) = EXPERIMENTS["large-vocab"].parts["paper"]
    lines = vocabulary_slopes(as_predicted(planned_rows(part), "trained-t3"))
    slopes = {line.length: f"{line.slope:.2f}" for line in lines}
    assert slopes == {1000: "1.36", 2000: "1.21", 3000: "1.19", 4000: "1.11"}
    assert " and ".join((", ".join(list(slopes.values())[:3]), slopes[4000])) in claim("fig-12").note
