"""How many facts: double n until recall is low, add queries around the crossing, say what it means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from scipy.special import ndtri

from recallscope.architectures.mamba import MambaSpec
from recallscope.measuring.checkpoints.curves import FITS, WHILE_SEARCHING, Counts, crossing, interpolated, law_curve
from recallscope.measuring.checkpoints.record import Crossing, LawSays, LawShape, Point
from recallscope.theory.bounds import information_bits
from recallscope.theory.law import find_law
from recallscope.theory.solve import solve

TARGETS = (0.5, 0.9)
FIRST = 2  # facts; with one there is nothing to tell apart
NO_SOONER = 16  # facts at which the search may end: some models need a few lines to see what is wanted
APART = 1.12  # two numbers of facts this close tell the same
FALSE_ALARM = 0.01  # of the verdict, over all numbers of facts together
MEASURES = ("correct", "greedy")  # forced choice among the candidates, and the whole vocabulary


def counts_of(points: Sequence[Point], measure: str = "correct") -> Counts:
    """What the estimates need of points."""
    return Counts(
        [point.num_facts for point in points],
        [getattr(point, f"{measure}_per_context") for point in points],
        [point.queries // point.contexts for point in points],
    )


def search(
    measure: Callable[[int], Point],
    *,
    max_facts: int,
    min_recall: float,
    width: float,
    max_queries: int,
    rng: np.random.Generator,
) -> list[Point]:
    """Points at doubling numbers of facts until recall is below `min_recall`, then more queries around n_50.

    `measure(n)` queries some more contexts of n facts and returns everything known at n. Queries are added until the
    ends of the 95% interval are within a factor `width`, first of forced choice, then of greedy decoding, or until
    `max_queries` are spent.
    """
    points: dict[int, Point] = {}
    n = FIRST
    while True:
        n = min(n, max_facts)
        points[n] = measure(n)
        if n == max_facts or (points[n].recall < min_recall and n >= NO_SOONER):
            break
        n *= 2
    for kind in MEASURES:
        while sum(point.queries for point in points.values()) < max_queries:
            there = [points[n] for n in sorted(points)]
            ends = crossing(counts_of(there, kind), TARGETS[0], rng, WHILE_SEARCHING)
            more = _most_telling(there, *ends, width)
            if more is None:
                break
            points[more] = measure(more)
    return [points[n] for n in sorted(points)]


def _most_telling(points: Sequence[Point], found: float, low: float, high: float, width: float) -> int | None:
    """The number of facts at which more queries narrow the interval most; None if it is narrow enough, or outside."""
    if not math.isfinite(found):
        return None
    n = [point.num_facts for point in points]
    gaps = [(a, b) for a, b in pairwise(n) if b > low and a < high and b / a > APART**2 and b - a > 1]
    if high / max(low, 1e-9) <= width and not any(a < found < b for a, b in gaps):
        return None
    if gaps:
        a, b = max(gaps, key=lambda gap: gap[1] / gap[0])
        return min(max(round(math.sqrt(a * b)), a + 1), b - 1)
    near = [point for point in points if low / APART <= point.num_facts <= high * APART]
    fewest = min(near or points, key=lambda point: (point.queries, abs(math.log(point.num_facts / found))))
    return fewest.num_facts


def find_crossing(points: Sequence[Point], measure: str, target: float, rng: np.random.Generator) -> Crossing:
    """Where recall falls to a target, or on which side of all measured numbers of facts that is."""
    counts = counts_of(points, measure)
    found, low, high = crossing(counts, target, rng)
    first, last = points[0].num_facts, points[-1].num_facts
    top = int(np.argmax(counts.recall))
    if found == -math.inf:
        reason = f"< {first}: accuracy is at most {counts.recall[top]:.3f}, with {counts.num_facts[top]} facts"
    elif found == math.inf:
        reason = f"> {last}: accuracy is still {counts.recall[-1]:.3f} with {last} facts"
    else:
        reason = f"measured from {first} to {last} facts"
        if counts.recall[0] < target:
            reason += f"; accuracy is {counts.recall[0]:.3f} with {first} facts and rises first"
    low_end, high_end = (end if math.isfinite(end) else None for end in (low, high))
    return Crossing(
        target=target,
        num_facts=found if math.isfinite(found) else None,
        interval=(low_end, high_end),
        interpolated=interpolated(counts.num_facts, counts.recall, target, min(max(found, first), last)),
        reason=reason,
    )


def law_shape(points: Sequence[Point], rng: np.random.Generator) -> LawShape | None:
    """The law's curve through forced choice, and whether the counts admit it; None with fewer than three points."""
    if len(points) < 3:
        return None
    curve, probability = law_curve(counts_of(points), rng)
    return LawShape(
        intercept=float(curve.intercept), slope=float(curve.slope), probability=probability, admitted=probability > FITS
    )


def held_bits(num_facts: int, num_values: int, recall: float) -> float:
    """Bits about the values that this recall proves were held.   Paper: Lem 4.5 (`lem:info-lower-bound`)."""
    if recall <= 1 / num_values:
        return 0.0
    missed = min(max(1 - recall, 1e-12), 1 - 1e-12)
    return float(information_bits(num_facts, 2 * num_values, missed, values="distinct"))


def verdict(points: Sequence[Point]) -> tuple[bool, str]:
    """Does the model recall: at some number of facts more than without facts, and more than with the values shuffled?

    At each number of facts the differences from both controls have to be above zero, by the lower end of an interval
    whose level is shared out over all of them (Bonferroni): a model that does not recall passes 1 time in 100.
    """
    z = float(-ndtri(FALSE_ALARM / len(points)))
    effective = counts_of(points).effective()
    above = [
        min(_lower(point.recall, control, m, z) for control in (point.no_facts, point.shuffled))
        for point, m in zip(points, effective, strict=True)
    ]
    best = points[int(np.argmax(above))]
    numbers = f"{len(points)} numbers of facts, {points[0].num_facts} to {points[-1].num_facts}"
    at = f"with {best.num_facts} facts its accuracy is {best.recall:.1%}"
    controls = f"{best.no_facts:.1%} by chance, {best.shuffled:.1%} with values shuffled"
    level = f"level {1 - FALSE_ALARM:.0%} over {numbers}"
    if max(above) > 0:
        return True, f"recalls: {at}, above both controls ({controls}; {level})"
    return False, f"does not recall: at none of {numbers}, is accuracy above both controls; {at} ({controls}; {level})"


def _lower(share: float, control: float, m: float, z: float) -> float:
    """Lower end of the interval of a difference of shares of the same queries, which exclude each other at worst."""
    p, c = ((one * m + 1) / (m + 2) for one in (share, control))
    return float(p - c - z * math.sqrt((p + c - (p - c) ** 2) / (m + 2)))


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


def differing(settings: Sequence[Mapping[str, object]]) -> list[str]:
    """The settings, seeds and budgets aside, in which compared probes differ."""
    names = ("template", "shots", "chat", "candidates", "words", "dtype", "state_precision")
    return [name for name in names if len({str(one.get(name)) for one in settings}) > 1]
