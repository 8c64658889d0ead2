"""n_50 from counts: it is where the counts say, its interval knows contexts from queries, and formulas are tested."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.special import ndtr

from commands import script
from recallscope.measuring.checkpoints.capacity import find_crossing, search, verdict
from recallscope.measuring.checkpoints.curves import Counts, crossing, crossings, falling, interpolated, law_curve

RESULTS = Path(__file__).parents[3] / "results" / "probe"
study = script("results/probe/coverage.py")
point = study.point


def rng(seed=0):
    return np.random.default_rng(seed)


def plain_antitonic(values, weights):
    """Pool adjacent violators, one after another."""
    blocks = []
    for value, weight in zip(values, weights, strict=True):
        blocks.append([value, weight, 1])
        while len(blocks) > 1 and blocks[-2][0] < blocks[-1][0]:
            (a, v, i), (b, w, j) = blocks[-2:]
            blocks[-2:] = [[(a * v + b * w) / (v + w), v + w, i + j]]
    return [value for value, _, count in blocks for _ in range(count)]


def test_the_falling_curve_is_that_of_pooling_adjacent_violators():
    values, weights = rng().random((50, 9)), rng(1).random(9) + 0.1
    fitted = falling(values, weights)
    for row, fit in zip(values, fitted, strict=True):
        top = int(row.argmax())
        assert fit[top:] == pytest.approx(plain_antitonic(row[top:], weights[top:]), abs=1e-6)
        assert fit[: top + 1] == pytest.approx(row[top], abs=1e-6)


def test_a_crossing_is_on_a_straight_line_in_log_n_or_outside():
    curves = np.array([[0.8, 0.6, 0.4], [0.4, 0.3, 0.2], [0.9, 0.8, 0.7]])
    assert crossings([2, 8, 32], curves, 0.5).tolist() == pytest.approx([16, -np.inf, np.inf])
    assert interpolated([2, 8, 32], np.array([0.4, 0.6, 0.4]), 0.5, 9) == pytest.approx(16)
    assert interpolated([2, 8], np.array([0.4, 0.3]), 0.5, 2) is None
    assert interpolated([2, 8], np.array([0.9, 0.8]), 0.5, 8) is None
    twice = [2, 8, 9, 16, 64], np.array([0.9, 0.4, 0.7, 0.6, 0.4]), 0.5
    assert [interpolated(*twice, near) for near in (4, 40)] == pytest.approx([2 * 4**0.8, 32])


def counts(curve, n=(2, 4, 8, 16, 24, 32, 48, 64, 128), contexts=400):
    """Contexts of 32 queries that are all as the curve says, nearly."""
    return Counts(n, [[round(32 * curve(one))] * contexts for one in n], [32] * len(n))


def test_a_start_that_rises_is_no_crossing():
    """Recall 0.25 with two facts, 0.75 with eight: n_50 is where it falls through one half."""
    found, low, high = crossing(counts(lambda n: {2: 0.25, 4: 0.5}.get(n, 0.75 if n < 30 else 0.25)), 0.5, rng())
    assert found == pytest.approx(np.sqrt(24 * 32))
    assert 24 < low < found < high < 32


def test_contexts_that_differ_make_the_interval_wider_than_queries_alone_do():
    n, mean = [4, 8, 16, 32, 64], [30, 26, 20, 12, 6]
    even = Counts(n, [[k] * 8 for k in mean], [32] * 5)
    uneven = Counts(n, [[k - 6, k + 6 if k < 27 else 32] * 4 for k in mean], [32] * 5)
    assert even.between_contexts()[0] < 0 < uneven.between_contexts()[0]
    assert (even.effective() == even.asked).all()
    assert (uneven.effective() < 0.6 * uneven.asked).all()
    (_, low, high), (_, lower, higher) = (crossing(one, 0.5, rng()) for one in (even, uneven))
    assert lower < low < high < higher


def test_the_design_effect_is_that_of_the_contexts():
    """Beta-binomial counts with correlation 0.2 at recall 0.5, so 0.2 / 0.25; 4,000 contexts, four standard errors."""
    draw, shape = rng(3), 0.5 * (1 / 0.2 - 1)
    drawn = [draw.binomial(16, draw.beta(shape, shape, size=1000)).tolist() for _ in range(4)]
    assert Counts([2, 4, 8, 16], drawn, [16] * 4).between_contexts()[0] == pytest.approx(0.8, abs=0.1)


def test_the_law_s_curve_is_admitted_where_counts_follow_it_and_refused_where_they_do_not():
    law = {n: [round(32 * ndtr(11 / n**0.5 - 2))] * 20 for n in (4, 8, 16, 32, 64, 128)}
    curve, probability = law_curve(Counts(list(law), list(law.values()), [32] * 6), rng())
    assert probability > 0.5
    assert curve.recall(np.array([30.25])) == pytest.approx(0.5, abs=0.01)
    forgets = {n: [round(32 * min(1, 8 / n))] * 20 for n in law}
    assert law_curve(Counts(list(forgets), list(forgets.values()), [32] * 6), rng())[1] < 0.01


def test_outside_of_what_was_measured_there_is_no_number():
    above = find_crossing([point(n, [min(n, 32)] * 8) for n in (2, 4, 8)], "correct", 0.5, rng())
    assert (above.num_facts, above.interval) == (None, (None, None))
    assert above.reason == "> 8: accuracy is still 1.000 with 8 facts"
    below = find_crossing([point(n, [0] * 40) for n in (2, 4)], "correct", 0.5, rng())
    assert below.num_facts is None
    assert below.reason.startswith("< 2: accuracy is at most 0.000")


def test_the_search_doubles_then_asks_near_the_crossing_until_the_interval_is_narrow():
    asked = []

    def measure(n):
        asked.append(n)
        return point(n, [round(min(n, 32) * min(1, 20 / n))] * 4 * asked.count(n))

    how = {"max_facts": 10**6, "min_recall": 0.2, "rng": rng()}
    points = search(measure, width=1.2, max_queries=10**5, **how)
    assert asked[:7] == [2, 4, 8, 16, 32, 64, 128]
    assert all(20 < n < 80 for n in asked[7:])
    _, low, high = crossing(Counts([p.num_facts for p in points], [p.correct_per_context for p in points],
                                   [p.queries // p.contexts for p in points]), 0.5, rng())  # fmt: skip
    assert low < 40 < high < 1.25 * low
    asked.clear()
    search(measure, width=1.2, max_queries=1, **how)
    assert asked == [2, 4, 8, 16, 32, 64, 128]


def test_a_poor_start_does_not_end_the_search():
    asked = []

    def measure(n):
        asked.append(n)
        return point(n, [0 if n < 8 else round(min(n, 32) * min(1, 20 / n))] * 4)

    search(measure, max_facts=64, min_recall=0.2, width=1.4, max_queries=1, rng=rng())
    assert asked == [2, 4, 8, 16, 32, 64]


@pytest.mark.parametrize("name", study.CURVES)
def test_the_interval_covers_what_it_promises(name):
    """30 simulated probes with the probe's own search. An interval that covers 92% misses 8 or more 1 time in 500."""
    assert study.coverage(name, 0.0, 30)["covered"] >= 23 / 30


def test_the_committed_table_of_coverage():
    """Held-out curves were in the script before they were run; the page has the range of every group of rows."""
    rows = json.loads((RESULTS / "coverage.json").read_text())["rows"]
    groups = {(False, u): study.CURVES for u in study.UNEVEN} | {
        (True, u): study.HELD_OUT for u in study.UNEVEN_HELD_OUT
    }
    page = " ".join((RESULTS.parents[1] / "docs" / "PROBE.md").read_text(encoding="utf-8").split())
    for (held_out, uneven), curves in groups.items():
        here = [row for row in rows if (row["held_out"], row["uneven"]) == (held_out, uneven)]
        assert [row["curve"] for row in here] == list(curves)
        assert all(row["runs"] >= 500 and 0.9 < row["covered"] < 0.98 for row in here)
        covered = [row["covered"] for row in here]
        assert f"{min(covered):.1%} to {max(covered):.1%}" in page


def guesses(n, shuffled=0.0, contexts=64):
    """Half of the answers correct."""
    half = point(n, [min(n, 32) // 2] * contexts)
    return half.model_copy(update={"no_facts": 0.01, "shuffled": shuffled})


def test_the_verdict_is_over_all_numbers_of_facts():
    """With two facts it names any of them, as the controls show; with 16 it recalls, and the sentence says so."""
    recalls, says = verdict([guesses(2, shuffled=0.5), guesses(16)])
    assert recalls
    assert "with 16 facts its accuracy is 50.0%" in says
    assert "2 numbers of facts, 2 to 16" in says
    assert verdict([guesses(2, shuffled=0.5), guesses(4, shuffled=0.5)])[0] is False


def test_the_verdict_counts_how_often_it_looked():
    """A difference that one look would accept is refused as the largest of many."""
    one = point(2, [1] * 12 + [0] * 14).model_copy(update={"no_facts": 0.0, "shuffled": 0.0})
    nothing = point(2, [0] * 26)
    assert verdict([one])[0] is True
    assert verdict([one, *[nothing] * 199])[0] is False
