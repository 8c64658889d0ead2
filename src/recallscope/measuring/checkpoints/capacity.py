"""How many facts: double n until recall falls below a floor, refine around the targets, fit, and say what it means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from recallscope.architectures.mamba import MambaSpec
from recallscope.health import noise
from recallscope.measuring.checkpoints.curves import INTERVAL, Curve, Form, fit, interpolated, resampled
from recallscope.measuring.checkpoints.record import Crossing, LawSays, Point
from recallscope.theory.bounds import information_bits
from recallscope.theory.law import find_law
from recallscope.theory.solve import solve

TARGETS = (0.5, 0.9)
FIRST = 2  # facts; with one there is nothing to tell apart
REFINE = 2  # further numbers of facts around each target
APART = 1.12  # two numbers of facts this close tell the same


def search(measure: Callable[[int], Point], most: int, floor: float) -> list[Point]:
    """Points at doubling numbers of facts until recall is below the floor, and between those around the targets."""
    points: dict[int, Point] = {}
    n = FIRST
    while True:
        n = min(n, most)
        points[n] = measure(n)
        if points[n].recall < floor or n == most:
            break
        n *= 2
    for target in TARGETS * REFINE:
        below = min((n for n, point in points.items() if point.recall < target), default=None)
        above = max((n for n, point in points.items() if point.recall >= target and n < (below or 0)), default=None)
        if below is None or above is None:
            continue
        middle = round(math.sqrt(above * below))
        if middle not in points and below / above > APART**2:
            points[middle] = measure(middle)
    return [points[n] for n in sorted(points)]


def held_bits(num_facts: int, num_values: int, recall: float) -> float:
    """Bits about the values that this recall proves were held.   Paper: Lem 4.5 (`lem:info-lower-bound`)."""
    if recall <= 1 / num_values:
        return 0.0
    missed = min(max(1 - recall, 1e-12), 1 - 1e-12)
    return float(information_bits(num_facts, 2 * num_values, missed, values="distinct"))


def fit_points(
    points: list[Point], rng: np.random.Generator
) -> tuple[dict[str, tuple[float, float]], tuple[Crossing, Crossing]]:
    """Intercept and slope of both curves, and where recall falls to the targets."""
    n, asked = (np.array([getattr(point, name) for point in points], float) for name in ("num_facts", "asked"))
    right = np.array([sum(point.right_per_context) for point in points], float)
    drawn = [resampled(np.array(point.right_per_context, float), point.num_facts, rng) for point in points]
    forms: tuple[Form, ...] = ("probit", "logistic")
    curves = {form: fit(form, n, right, asked) for form in forms}
    again = fit("probit", n, np.column_stack(drawn), asked)
    half, most = (_crossing(points, target, curves, again) for target in TARGETS)
    return {form: (float(curve.intercept), float(curve.slope)) for form, curve in curves.items()}, (half, most)


def _crossing(points: list[Point], target: float, curves: Mapping[Form, Curve], again: Curve) -> Crossing:
    n, recall = np.array([point.num_facts for point in points]), np.array([point.recall for point in points])
    between = interpolated(n, recall, target)
    facts: dict[str, Any] = {"target": target, "interpolated": between if math.isfinite(between) else None}
    if not math.isfinite(between):
        few, more = points[0], points[-1]
        if few.recall < target:
            reason = f"below {few.num_facts}: recall is {few.recall:.3f} with {few.num_facts} facts already"
        else:
            reason = f"above {more.num_facts}: recall is still {more.recall:.3f}"
        return Crossing(num_facts=None, interval=(None, None), logistic=None, reason=reason, **facts)
    found = {form: float(curve.crossing(target)) for form, curve in curves.items()}
    ends = np.nanpercentile(again.crossing(target), INTERVAL, method="nearest")
    low, high = (float(end) if np.isfinite(end) else None for end in ends)
    return Crossing(
        num_facts=found["probit"] if math.isfinite(found["probit"]) else between,
        interval=(low, high),
        logistic=found["logistic"] if math.isfinite(found["logistic"]) else None,
        reason=f"recall falls to {target:g} between {n[recall >= target].max()} and {n[recall < target].min()} facts",
        **facts,
    )


def verdict(points: list[Point]) -> tuple[bool, str]:
    """Does the model recall at all: more than without facts, and more than with its facts dealt otherwise?"""
    best = max(points, key=lambda point: point.recall)
    control = max(best.prior, best.shuffled)
    at = f"with {best.num_facts} facts it answers {best.recall:.1%} rightly"
    controls = f"{best.prior:.1%} without facts, {best.shuffled:.1%} with the facts' values dealt otherwise"
    if best.recall <= control + noise(control, best.asked) + noise(best.recall, best.asked):
        return False, f"does not recall: {at}, no more than the controls ({controls})"
    return True, f"recalls: {at} ({controls})"


def law_says(embed_dim: int, state_entries: int, vocab_size: int) -> LawSays | None:
    """n_50 and n_90 of one trained Mamba layer with as many state entries, 2 D N; None below one dimension.

    Paper: Rem 4.3 (`rem:practical-scaling-law`), as App. K uses it for full Mamba.
    """
    law, N = find_law(MambaSpec.law), state_entries // (2 * embed_dim)
    if N < 1:
        return None
    n_50, n_90 = (
        solve(law=law, target=target, task="ar", vocab_size=vocab_size, embed_dim=embed_dim, state_dim=N).value
        for target in TARGETS
    )
    return LawSays(law=law.name, embed_dim=embed_dim, state_dim=N, vocab_size=vocab_size, n_50=n_50, n_90=n_90)
