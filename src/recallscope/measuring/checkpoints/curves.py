"""Where recall falls through a target: from the counts alone, without a formula for the curve; and how sure that is.

Recall is taken to fall with the number of facts n from its maximum on: an antitonic regression (the closest curve that
never rises) from the number of facts with the largest recall. Before it recall may rise, as it does in models that need
a few lines to see what is wanted. The crossing is read off straight lines in log n between the measured numbers.

Its interval is a bootstrap. Queries of one context are alike, so m queries count for m over the design effect
1 + (q - 1) rho: q queries of a context, and rho the correlation within contexts. Contexts are taken to differ in their
log-odds by a variance that is the same for all numbers of facts, so that rho is that variance times p (1 - p) at
recall p. Every resample draws each recall anew from what so many independent queries leave open, and fits again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr, ndtri, xlogy

Array = NDArray[np.float64]
RESAMPLES = 1000  # of an interval that is reported
WHILE_SEARCHING = 300
PERCENTILES = (2.0, 98.0)
"""Of the bootstrap, for intervals of 95%: chosen on the first curves of results/probe/coverage.py, before its held-out
ones were run. 2.5 and 97.5 cover less, as queries are added near the crossing until the interval seems narrow."""
FITS = 0.05  # probability under the law's curve of counts that are as far from it, below which it is not drawn
STEPS = 40  # of Fisher scoring
SHRINK = 1e-3  # weight of a standard normal prior on both coefficients: curves that jump from 1 to 0 stay finite


@dataclass(frozen=True)
class Counts:
    """Correct answers of every context, at several numbers of facts in increasing order."""

    num_facts: Sequence[int]
    correct: Sequence[Sequence[int]]
    queries: Sequence[int]
    """of one context"""

    @property
    def asked(self) -> Array:
        """Queries at every number of facts."""
        return np.array([len(k) * q for k, q in zip(self.correct, self.queries, strict=True)], float)

    @property
    def recall(self) -> Array:
        """Share of correct answers at every number of facts."""
        return np.array([sum(k) for k in self.correct], float) / self.asked

    def effective(self) -> Array:
        """Independent queries that tell as much."""
        return self._effective(np.array(self.between_contexts()[0]))

    def drawn(self, rng: np.random.Generator, resamples: int = RESAMPLES) -> Array:
        """Recall at every number of facts, so many times, as uncertain as the counts leave it.

        The variance between contexts is drawn as well (as in a t interval), as it is known from a few contexts only.
        """
        variance, typical, freedom = self.between_contexts()
        ratio = (1 + typical * variance) * freedom / rng.chisquare(max(freedom, 1), size=(resamples, 1))
        m = self._effective((ratio - 1) / max(typical, 1e-9)) if freedom else self.effective()
        k = self.recall * m
        return rng.beta(k + 0.5, m - k + 0.5, size=(resamples, len(self.num_facts)))

    def between_contexts(self) -> tuple[float, float, float]:
        """The variance of their log-odds; by how much a unit of it inflates a typical count; its degrees of freedom.

        It is below 0 where contexts differ by less than chance.
        """
        excess = largest = weights = squares = 0.0
        for k, q in zip(self.correct, self.queries, strict=True):
            share, free = np.asarray(k, float) / q, len(k) - 1
            chance = share.mean() * (1 - share.mean())
            if free > 0 and q > 1 and chance > 0:
                weight = free * chance**2 * (q - 1)
                excess += free * (q * share.var(ddof=1) - chance)
                largest += weight
                weights += weight * chance * (q - 1)
                squares += weight**2 / free
        if not largest:
            return 0.0, 0.0, 0.0
        return excess / largest, weights / largest, largest**2 / squares

    def _effective(self, variance: Array) -> Array:
        rho = np.clip(variance * self.recall * (1 - self.recall), 0, 1)
        effects: Array = self.asked / (1 + (np.array(self.queries, float) - 1) * rho)
        return effects


def falling(recall: Array, weight: Array) -> Array:
    """The closest curves that never rise from their maximum on, one per row; before it they are the maximum."""
    recall = np.atleast_2d(recall)
    top = recall.argmax(axis=1)[:, None]
    places = np.arange(recall.shape[1])
    started = places >= top
    p = np.where(started, recall, recall.max(axis=1, keepdims=True))
    w = np.where(started, weight, 1e-9 * np.min(weight))
    sums, weights = (np.pad(np.cumsum(one, axis=1), ((0, 0), (1, 0))) for one in (p * w, w))
    upper = places[:, None] <= places  # [first, last] of a stretch
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = (sums[:, None, 1:] - sums[:, :-1, None]) / (weights[:, None, 1:] - weights[:, :-1, None])
    best = np.maximum.accumulate(np.where(upper, mean, -np.inf)[:, :, ::-1], axis=2)[:, :, ::-1]
    lowest: Array = np.where(upper, best, np.inf).min(axis=1)
    return lowest


def crossings(num_facts: Sequence[int], fitted: Array, target: float) -> Array:
    """Where each falling curve goes through the target: -inf if it begins below, inf if it ends above."""
    log_n, rows, below = np.log(num_facts), np.arange(len(fitted)), fitted < target
    last = np.where(below.any(axis=1), below.argmax(axis=1), 1).clip(1)
    high, low = fitted[rows, last - 1], fitted[rows, last] if fitted.shape[1] > 1 else fitted[:, 0]
    step = log_n[last] - log_n[last - 1] if len(log_n) > 1 else np.zeros(len(fitted))
    way = np.clip((high - target) / np.where(high > low, high - low, 1.0), 0, 1)  # beyond only where it is not used
    between = np.exp(log_n[last - 1] + way * step)
    return np.where(below[:, 0], -np.inf, np.where(below[:, -1], between, np.inf))


def crossing(
    counts: Counts, target: float, rng: np.random.Generator, resamples: int = RESAMPLES
) -> tuple[float, float, float]:
    """The number of facts, and the ends of its 95% interval; infinite where outside of what was measured."""
    found = crossings(counts.num_facts, falling(counts.recall, counts.asked), target)
    again = crossings(counts.num_facts, falling(counts.drawn(rng, resamples), counts.asked), target)
    low, high = np.percentile(again, PERCENTILES, method="nearest")
    return float(found[0]), float(low), float(high)


def share_interval(counts: Counts, rng: np.random.Generator) -> Array:
    """95% interval of recall at every number of facts, [low, high] per row."""
    return np.percentile(counts.drawn(rng), (2.5, 97.5), axis=0).T


@dataclass(frozen=True)
class LawCurve:
    """recall = Phi(intercept + slope / sqrt(n)), as of a memory in which n facts are each other's noise."""

    intercept: Array
    slope: Array

    def recall(self, num_facts: Array) -> Array:
        """At these numbers of facts, one row per curve."""
        return np.asarray(ndtr(self.intercept[..., None] + self.slope[..., None] * np.asarray(num_facts) ** -0.5))


def law_curve(counts: Counts, rng: np.random.Generator) -> tuple[LawCurve, float]:
    """The law's curve of maximum likelihood, and the probability under it of counts that fit it as badly.

    Small probabilities say that recall has another shape. The deviance is compared with that of counts drawn from the
    fitted curve, each fitted again.
    """
    n, m = np.array(counts.num_facts, float), counts.effective()
    curve = _fit(n, counts.recall * m, m)
    whole = np.maximum(m.round(), 1)
    drawn = rng.binomial(whole.astype(int), curve.recall(n), size=(RESAMPLES, len(n))).astype(float)
    far = _deviance(counts.recall, m, curve.recall(n))
    by_chance = _deviance(drawn / whole, whole, _fit(n, drawn, whole).recall(n))
    return curve, float((1 + np.sum(by_chance >= far)) / (1 + RESAMPLES))


def _deviance(share: Array, m: Array, p: Array) -> Array:
    p = np.clip(p, 1e-12, 1 - 1e-12)
    gap: Array = m * (xlogy(share, share / p) + xlogy(1 - share, (1 - share) / (1 - p)))
    return 2 * gap.sum(axis=-1)


def _fit(num_facts: Array, correct: Array, asked: Array) -> LawCurve:
    """Fisher scoring; with rows of counts, one curve per row."""
    x = num_facts**-0.5
    centre, scale = x.mean(), max(float(x.std()), 1e-9)
    u = (x - centre) / scale
    k, m = np.broadcast_arrays(correct, asked)
    a = ndtri((k.sum(-1) + 0.5) / (m.sum(-1) + 1))
    b = np.ones_like(a)
    for _ in range(STEPS):
        eta = np.clip(a[..., None] + b[..., None] * u, -30, 30)
        log_density = -(eta**2) / 2 - 0.5 * np.log(2 * np.pi)
        up, down = np.exp(log_density - log_ndtr(eta)), np.exp(log_density - log_ndtr(-eta))
        gradient, weight = k * up - (m - k) * down, np.maximum(m * up * down, 1e-12)
        g_a, g_b = gradient.sum(-1) - SHRINK * a, (gradient * u).sum(-1) - SHRINK * b
        h_aa, h_ab, h_bb = weight.sum(-1) + SHRINK, (weight * u).sum(-1), (weight * u * u).sum(-1) + SHRINK
        det = h_aa * h_bb - h_ab**2
        step_a, step_b = (h_bb * g_a - h_ab * g_b) / det, (h_aa * g_b - h_ab * g_a) / det
        short = 1 / np.maximum(1, np.hypot(step_a, step_b))  # no step longer than 1: far steps overshoot
        a, b = a + short * step_a, b + short * step_b
    return LawCurve(a - b * centre / scale, b / scale)


def interpolated(num_facts: Sequence[int], recall: Array, target: float, near: float) -> float | None:
    """Where measured recall falls below a target after its maximum, on a straight line in log n.

    It may cross more than once; then it is the crossing closest to `near`.
    """
    log_n, recall = np.log(num_facts), np.asarray(recall)
    high, low = recall[:-1], recall[1:]
    falls = np.flatnonzero((high >= target) & (low < target) & (np.arange(len(high)) >= recall.argmax()))
    if not len(falls):
        return None
    way = (high[falls] - target) / (high[falls] - low[falls])
    found = np.exp(log_n[falls] + way * (log_n[falls + 1] - log_n[falls]))
    return float(min(found, key=lambda n: abs(np.log(n / near))))
