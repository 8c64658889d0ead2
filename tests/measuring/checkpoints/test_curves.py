"""Curves through counts: they find what the counts were drawn from, and intervals hold what they promise."""

import numpy as np
import pytest
from scipy.special import ndtr

from recallscope.measuring.checkpoints.capacity import fit_points, verdict
from recallscope.measuring.checkpoints.curves import fit, interpolated, resampled
from recallscope.measuring.checkpoints.record import Point

N = np.array([2, 4, 8, 16, 24, 32, 45, 64, 128.0])


def recall(n, a=-2.0, b=11.0):
    return ndtr(a + b / np.sqrt(n))


TRUTH = {0.5: (11 / 2) ** 2, 0.9: (11 / (2 + 1.2815515655446004)) ** 2}


@pytest.mark.parametrize("target", TRUTH)
def test_exact_shares_give_the_exact_crossing(target):
    asked = np.full(len(N), 1e6)
    assert fit("probit", N, recall(N) * asked, asked).crossing(target) == pytest.approx(TRUTH[target], rel=1e-4)
    n_50 = fit("logistic", N, asked / (1 + (N / 20) ** 3), asked).crossing(0.5)
    assert n_50 == pytest.approx(20, rel=1e-4)


def test_many_curves_at_once_are_the_same_as_each():
    counts = np.random.default_rng(0).binomial(200, recall(N), size=(5, len(N))).astype(float)
    asked = np.full(len(N), 200.0)
    together = fit("probit", N, counts, asked).crossing(0.5)
    assert together == pytest.approx([float(fit("probit", N, row, asked).crossing(0.5)) for row in counts], rel=1e-9)


def point(n, right_per_context):
    n, right = int(n), [int(k) for k in right_per_context]
    fields = dict.fromkeys(Point.model_fields, 0) | {"interval": (0, 0), "by_place": [], "num_facts": n}
    asked = n * len(right)
    return Point(**fields | {"right_per_context": right, "asked": asked, "recall": sum(right) / asked})


def test_the_interval_covers_what_it_promises():
    """Contexts that differ by more than chance: logits shifted by N(0, .3²) each. An interval that covers 95 % of
    them misses more than 8 of 40 once in 10,000 times."""
    rng, covered, runs = np.random.default_rng(0), 0, 40
    for _ in range(runs):
        points = []
        for n in N:
            contexts = max(4, int(256 // n))
            shares = ndtr(-2 + 11 / np.sqrt(n) + 0.3 * rng.normal(size=contexts))
            points.append(point(n, rng.binomial(int(n), shares)))
        low, high = fit_points(points, rng)[1][0].interval
        covered += low <= TRUTH[0.5] <= high
    assert covered >= runs - 8


def test_a_jump_from_all_to_nothing_is_between_the_two():
    asked = np.full(len(N), 256.0)
    for form in ("probit", "logistic"):
        assert 16 < fit(form, N, asked * (N < 20), asked).crossing(0.5) < 24


def test_where_there_is_no_crossing_the_reason_is_given():
    above = fit_points([point(n, [n] * 4) for n in (2, 4, 8)], np.random.default_rng(0))[1][0]
    assert (above.num_facts, above.reason) == (None, "above 8: recall is still 1.000")
    below = fit_points([point(n, [0] * 4) for n in (2, 4)], np.random.default_rng(0))[1][0]
    assert (below.num_facts, below.reason) == (None, "below 2: recall is 0.000 with 2 facts already")


def test_a_straight_line_in_log_n():
    assert interpolated(np.array([8, 32]), np.array([1.0, 0.0]), 0.5) == pytest.approx(16)
    assert np.isnan(interpolated(np.array([8, 32]), np.array([0.4, 0.0]), 0.5))


def test_resampling_keeps_the_mean_and_knows_contexts_from_questions():
    rng = np.random.default_rng(0)
    even, uneven = resampled(np.full(8, 5.0), 10, rng), resampled(np.array([0, 10.0] * 4), 10, rng)
    assert even.mean() == pytest.approx(40, abs=1.5)
    assert uneven.mean() == pytest.approx(40, abs=4)
    assert uneven.std() > 2 * even.std()


def test_recall_that_controls_have_too_is_no_recall():
    """Half of the answers right with two facts, and as many with the values dealt otherwise: it guesses among two."""
    guesses = point(2, [1] * 128).model_copy(update={"shuffled": 0.5})
    assert verdict([guesses])[0] is False
    assert verdict([guesses.model_copy(update={"shuffled": 0.1})])[0] is True
