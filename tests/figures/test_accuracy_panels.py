"""Grids are drawn the right way round, with their own values on the axes, and never invent a cell."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from pandas import DataFrame

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.figures.accuracy_panels import draw_grid, draw_missing, short_number

ROWS = [
    {"embed_dim": D, "state_dim": N, "test_accuracy": D / 100 + N / 1000, "seed": 0}
    for D in (8, 16, 64)
    for N in (4, 16)
    if N <= D and (D, N) != (64, 4)
]


def panel():
    return Figure().subplots()


def shown(ax):
    (image,) = ax.images
    return np.ma.filled(image.get_array().astype(float), np.nan)


def ticks(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def test_the_first_axis_goes_right_and_the_second_up():
    grid = AccuracyGrid.from_runs(DataFrame(ROWS))
    ax = draw_grid(grid, panel(), title="a grid")
    assert np.array_equal(shown(ax), grid.accuracy.T, equal_nan=True)
    assert ax.images[0].origin == "lower"
    assert (ticks(ax.xaxis), ticks(ax.yaxis)) == (["8", "16", "64"], ["4", "16"])
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("$D$", "$N$", "a grid")
    assert ax.images[0].get_clim() == (0, 1)


def test_numbers_stand_in_measured_cells_only():
    ax = draw_grid(AccuracyGrid.from_runs(DataFrame(ROWS)), panel())
    written = {text.get_position(): text.get_text() for text in ax.texts}
    assert written == {(0, 0): ".08", (1, 0): ".16", (1, 1): ".18", (2, 1): ".66"}


def test_cells_that_are_planned_and_missing_are_hatched_and_others_white():
    rows = [*ROWS, {"embed_dim": 64, "state_dim": 4, "test_accuracy": np.nan, "seed": 0}]  # not (8, 16), as N > D
    ax = draw_grid(AccuracyGrid.from_runs(DataFrame(rows)), panel())
    (hatched,) = [patch for patch in ax.patches if isinstance(patch, Rectangle)]
    assert hatched.get_hatch()
    assert hatched.get_xy() == (1.5, -0.5)


def test_a_dense_grid_has_no_numbers_and_few_labels():
    grid = AccuracyGrid.over({"embed_dim": range(2, 65, 2), "state_dim": range(2, 33)})
    grid.accuracy[:] = 0.5
    ax = draw_grid(grid, panel())
    assert list(ax.texts) == []
    assert ticks(ax.xaxis)[:2] == ["2", "8"]
    assert len(ticks(ax.yaxis)) <= 12


@pytest.mark.parametrize(
    ("value", "text"), [(0.123, ".12"), (1.0, "1"), (0.0, "0"), (0.9996, ">.99"), (0.994, ".99"), (0.001, "<.01")]
)
def test_a_number_never_claims_more_than_it_is(value, text):
    assert short_number(value) == text


def test_an_empty_panel_says_why():
    (text,) = draw_missing(panel(), why="no runs yet").texts
    assert text.get_text() == "no runs yet"
