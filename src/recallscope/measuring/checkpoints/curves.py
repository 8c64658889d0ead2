"""Recall against the number of facts: a curve through counts, where it crosses a target, and how sure that is.

Two curves, by maximum likelihood. Probit in 1/sqrt(n), as of a memory in which n facts are each other's noise (the
law's form); logistic in log n. Intervals are a bootstrap over contexts, each with its own keys, values and order, and
over the questions within them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_ndtr, logit, ndtr, ndtri

Array = NDArray[np.float64]
Form = Literal["probit", "logistic"]
RESAMPLES = 400
STEPS = 40  # of Fisher scoring
SHRINK = 1e-3  # weight of a standard normal prior on both coefficients: curves that jump from 1 to 0 stay finite
INTERVAL = (2.5, 97.5)


@dataclass(frozen=True)
class _Link:
    """Facts to the variable in which the curve is straight, and back; probability and quantile."""

    variable: Callable[[Array], Array]
    facts: Callable[[Array], Array]
    probability: Callable[[Array], Array]
    quantile: Callable[[float], float]


def _facts_of_root(x: Array) -> Array:
    """n of 1/sqrt(n); a curve that is still above the target at 0 never falls to it."""
    return np.where(x > 0, np.maximum(x, 1e-9) ** -2.0, np.inf)


LINKS: Mapping[str, _Link] = {
    "probit": _Link(lambda n: n**-0.5, _facts_of_root, ndtr, lambda p: float(ndtri(p))),
    "logistic": _Link(lambda n: -np.log(n), lambda x: np.exp(-x), expit, lambda p: float(logit(p))),
}


@dataclass(frozen=True)
class Curve:
    """recall = link(intercept + slope x(n)); arrays hold one curve per resample."""

    form: Form
    intercept: Array
    slope: Array

    def recall(self, num_facts: Array) -> Array:
        """At these numbers of facts, one row per resample."""
        link = LINKS[self.form]
        x = link.variable(np.asarray(num_facts, float))
        return link.probability(self.intercept[..., None] + self.slope[..., None] * x)

    def crossing(self, target: float) -> Array:
        """The number of facts at which recall is the target; infinite where it never falls so low, nan if it rises."""
        link = LINKS[self.form]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            x = (link.quantile(target) - self.intercept) / self.slope
            return np.where(self.slope > 0, link.facts(x), np.nan)


def fit(form: Form, num_facts: Array, right: Array, asked: Array) -> Curve:
    """The curve of counts `right` out of `asked` at `num_facts`; with rows of counts, one curve per row."""
    x = LINKS[form].variable(np.asarray(num_facts, float))
    centre, scale = x.mean(), max(float(x.std()), 1e-9)
    u = (x - centre) / scale
    k, m = np.broadcast_arrays(np.asarray(right, float), np.asarray(asked, float))
    p = (k.sum(-1) + 0.5) / (m.sum(-1) + 1)
    a, b = np.asarray([LINKS[form].quantile(float(one)) for one in p.ravel()]).reshape(p.shape), np.ones(p.shape)
    for _ in range(STEPS):
        eta = np.clip(a[..., None] + b[..., None] * u, -30, 30)
        gradient, weight = _score(form, eta, k, m)
        g_a, g_b = gradient.sum(-1) - SHRINK * a, (gradient * u).sum(-1) - SHRINK * b
        h_aa, h_ab, h_bb = weight.sum(-1) + SHRINK, (weight * u).sum(-1), (weight * u * u).sum(-1) + SHRINK
        det = h_aa * h_bb - h_ab**2
        step_a, step_b = (h_bb * g_a - h_ab * g_b) / det, (h_aa * g_b - h_ab * g_a) / det
        short = 1 / np.maximum(1, np.hypot(step_a, step_b))  # no step longer than 1: far steps overshoot
        a, b = a + short * step_a, b + short * step_b
    return Curve(form, a - b * centre / scale, b / scale)


def _score(form: Form, eta: Array, k: Array, m: Array) -> tuple[Array, Array]:
    """Derivative of the log-likelihood with respect to eta, and its expected curvature."""
    if form == "logistic":
        p = expit(eta)
        return k - m * p, np.maximum(m * p * (1 - p), 1e-12)
    log_density = -(eta**2) / 2 - 0.5 * np.log(2 * np.pi)
    up, down = np.exp(log_density - log_ndtr(eta)), np.exp(log_density - log_ndtr(-eta))
    return k * up - (m - k) * down, np.maximum(m * up * down, 1e-12)


def resampled(right_per_context: Array, num_facts: int, rng: np.random.Generator) -> Array:
    """Right answers in all, had other contexts and other questions in them been drawn; `RESAMPLES` times."""
    contexts = len(right_per_context)
    which = rng.integers(contexts, size=(RESAMPLES, contexts))
    found: Array = rng.binomial(num_facts, right_per_context[which] / num_facts).sum(axis=1).astype(float)
    return found


def interpolated(num_facts: Array, recall: Array, target: float) -> float:
    """Where recall falls below a target for the first time, on a straight line in log n; nan if it does not."""
    order = np.argsort(num_facts)
    n, r = np.log(np.asarray(num_facts, float)[order]), np.asarray(recall, float)[order]
    below = np.flatnonzero(r < target)
    if not len(below) or below[0] == 0:
        return float("nan")
    i = int(below[0])
    return float(np.exp(n[i - 1] + (r[i - 1] - target) / (r[i - 1] - r[i]) * (n[i] - n[i - 1])))
