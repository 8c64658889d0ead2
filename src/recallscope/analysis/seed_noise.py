"""Seed noise: how far runs that differ in nothing but the seed spread, and what that does to a difference of cells."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame
from scipy.special import stdtrit

from recallscope.analysis.table import COMPARED, Reduce, fields_of
from recallscope.theory.extremes import max_moments

Array = NDArray[np.float64]
Ends = tuple[float, float]
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class SeedNoise:
    """Runs of a cell of mean accuracy p have the variance `coefficient` p (1 - p); unknown with 0 `degrees`.

    `degrees` counts the runs it was estimated from, less one for every cell.
    """

    coefficient: float
    degrees: int

    def deviations(self, accuracy: Array, seeds: Array, reduce: Reduce = COMPARED) -> Array:
        """Standard deviations of cells' numbers: the mean of so many seeds, the best of them, or one; 0 if unknown."""
        one = np.sqrt(np.maximum(self.coefficient * accuracy * (1 - accuracy), 0)) if self.degrees else 0 * accuracy
        left = {"mean": lambda n: 1 / n, "best": lambda n: max_moments(n)[1]}.get(reduce, np.ones_like)(seeds)
        return np.asarray(one * np.sqrt(left))

    def draws(self, shape: tuple[int, int], generator: np.random.Generator) -> Array:
        """Noise in units of the deviations (resamplings, cells); what is not known of the coefficient is in it."""
        scale = np.sqrt(self.degrees / generator.chisquare(self.degrees, (shape[0], 1))) if self.degrees else 1.0
        return np.asarray(scale * generator.standard_normal(shape))

    def __str__(self) -> str:
        """What intervals say about it."""
        if not self.degrees:
            return "seed noise is not in it, as no cell has two seeds"
        return f"seed noise, {self.coefficient**0.5:.3f} sqrt(p (1 - p)) by {self.degrees} degrees of freedom, is in it"


UNKNOWN_NOISE = SeedNoise(float("nan"), 0)


def pooled_noise(cells: Iterable[Array]) -> SeedNoise:
    """The noise behind the accuracies of some cells' runs; cells of one run tell nothing."""
    several = [(values, values.mean()) for values in cells if len(values) > 1]
    squares = sum(float(((values - p) ** 2).sum()) for values, p in several)
    weights = sum((len(values) - 1) * float(p * (1 - p)) for values, p in several)
    degrees = sum(len(values) - 1 for values, _ in several)
    return SeedNoise(squares / weights, degrees) if weights else UNKNOWN_NOISE


def seed_noise(table: DataFrame) -> SeedNoise:
    """The noise of runs, pooled over all that differ in the seed alone."""
    alike = [name for name in fields_of(table) if name != "seed"]
    if not alike:
        return pooled_noise(())
    cells = table.groupby(alike, dropna=False, sort=False)["test_accuracy"]
    return pooled_noise(values.to_numpy(float) for _, values in cells)


@dataclass(frozen=True)
class MeanGap:
    """Mean difference over pairs of cells, with a 95% interval (nan if nothing tells how wide it is)."""

    mean: float
    interval: Ends
    gaps: Array


def mean_gap(
    pairs: Sequence[tuple[Key, Key]], cells: Mapping[Key, Array], noise: SeedNoise, quantile: float = 0.975
) -> MeanGap:
    """The first of each pair less the second, each the mean of its cell's seeds.

    The standard error is what seed noise gives for these very pairs (a cell in several of them counts in all), or, if
    that is larger, what the gaps' own spread gives. Identical models are told apart in at most 5% of cases.
    """
    gaps = np.array([cells[first].mean() - cells[second].mean() for first, second in pairs])
    weights: dict[Key, float] = {}
    for first, second in pairs:
        weights[first] = weights.get(first, 0.0) + 1 / len(pairs)
        weights[second] = weights.get(second, 0.0) - 1 / len(pairs)
    used = [cells[key] for key in weights]
    deviations = noise.deviations(np.array([values.mean() for values in used]), np.array([len(v) for v in used]))
    by_seeds = float(np.sqrt(((np.array(list(weights.values())) * deviations) ** 2).sum()))
    by_spread = float(gaps.std(ddof=1) / np.sqrt(len(gaps))) if len(gaps) > 1 else 0.0
    degrees = noise.degrees or len(gaps) - 1
    half = max(by_seeds, by_spread) * float(stdtrit(degrees, quantile)) if degrees else float("nan")
    middle = float(gaps.mean())
    return MeanGap(middle, (middle - half, middle + half), gaps)


def ends_of(draws: Array) -> Ends:
    """The 95% interval of resampled values, 0 and infinity among them: an end is always one of the values."""
    if not len(draws):
        return float("nan"), float("nan")
    return float(np.quantile(draws, 0.025, method="lower")), float(np.quantile(draws, 0.975, method="higher"))


def interval(low: float, high: float, digits: int = 2) -> str:
    """[low, high] as text; an infinite end is unbounded, and without ends (nan) there is no interval."""
    if not low <= high:
        return "(no interval)"
    below, above = ("unbounded" if isinf(end) else f"{end:.{digits}f}" for end in (low, high))
    return f"[{below}, {above}]"
