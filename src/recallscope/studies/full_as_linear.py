"""Full Mamba beside the linear model: is its noise coefficient a half, or is it a linear model of other dimensions?

Paper: Fig. 4 (`fig:scaling-laws-1d-dims`), where a of the full model is said to be half of the linear one's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.collapse import A_BOUNDS, FEWEST_CELLS, curve_misses, fit_curves, without_bounds
from recallscope.analysis.compare import dimensions, law_on_cells
from recallscope.analysis.many_fits import many_least_squares
from recallscope.analysis.seed_noise import Ends, SeedNoise, ends_of
from recallscope.analysis.table import accuracies
from recallscope.studies.law_table import LawEntry, entry_of
from recallscope.theory.extremes import typical_max
from recallscope.theory.law import Law
from recallscope.theory.laws.sharing import sharing_law
from recallscope.theory.problem import Problem

Array = NDArray[np.float64]
RULES = {  # what one factor c may do to (D, N)
    "(c D, N)": (1.0, 0.0),
    "(D, c N)": (0.0, 1.0),
    "(c D, c N)": (1.0, 1.0),
}
LARGEST = 4.0
_CELL = ["task", "vocab_size", "num_facts", "length", "embed_dim", "state_dim"]


@dataclass(frozen=True)
class Ratio:
    """a of the first over a of the second: each with its own b, and with one b for both; 95% intervals."""

    value: float
    interval: Ends
    shared_b: float
    shared_b_interval: Ends
    cells: int


def coefficient_ratio(
    first: AccuracyGrid,
    second: AccuracyGrid,
    generator: np.random.Generator,
    *,
    bootstrap: int = 400,
    noises: tuple[SeedNoise, SeedNoise] | None = None,
) -> Ratio:
    """Fit Phi(x - b) to both kinds on the cells they share, mean of seeds against mean of seeds.

    Intervals are from resampling cells, the same for both, with the seed noise of each added.
    """
    keys = [list(zip(*(grid.measured[name] for name in _CELL), strict=True)) for grid in (first, second)]
    shared = [cell for cell in keys[0] if cell in keys[1]]
    if len(shared) < FEWEST_CELLS:
        raise ValueError(f"{len(shared)} cells in common: at least {FEWEST_CELLS} are needed.")
    places = [list(map(mine.index, shared)) for mine in keys]
    cells = [grid.measured.iloc[place] for grid, place in zip((first, second), places, strict=True)]
    problem = dimensions(cells[0])
    chosen = generator.integers(len(shared), size=(bootstrap, len(shared)))
    chosen = np.concatenate((np.arange(len(shared))[None], chosen))  # first the cells themselves
    both = []
    for one, noise in zip(cells, noises or (first.noise, second.noise), strict=True):
        measured = accuracies(one)
        moved = noise.draws(chosen.shape, generator) * noise.deviations(measured, one["seeds"].to_numpy(int))[chosen]
        moved[0] = 0
        both.append(np.clip(measured[chosen] + moved, 0, 1))
    apart, together = _ratios(problem.take(chosen), *both)
    return Ratio(float(apart[0]), ends_of(apart[1:]), float(together[0]), ends_of(together[1:]), len(shared))


def _ratios(problem: Problem, first: Array, second: Array) -> tuple[Array, Array]:
    """Ratios of the a's with a b each, and with one b, for rows of accuracies (fits, cells)."""
    b, (low, high) = float(typical_max(problem.V.flat[0])), np.log(A_BOUNDS)
    starts = np.tile((1.0, b), (len(first), 1))
    apart = [fit_curves(problem, measured, starts)[0][:, 0] for measured in (first, second)]

    def misses(values: Array) -> tuple[Array, Array]:
        """Of both, for rows (log a, log a, b)."""
        parts = [curve_misses(problem, values[:, (i, 2)], y) for i, y in enumerate((first, second))]
        slopes = np.zeros((len(first), 2, first.shape[1], 3))
        for i, (_, slope) in enumerate(parts):
            slopes[:, i, :, i], slopes[:, i, :, 2] = slope[..., 0], slope[..., 1]
        return np.concatenate([miss for miss, _ in parts], 1), slopes.reshape(len(first), -1, 3)

    found, _ = many_least_squares(
        misses, np.tile((0.0, 0.0, b), (len(first), 1)), np.array([low, low, -np.inf]), np.array([high, high, np.inf])
    )
    return _quotient(*apart), _quotient(*np.exp(found[:, :2].T))


def _quotient(first: Array, second: Array) -> Array:
    """Infinity or 0 where one of the two is not bounded by the data."""
    above, below = without_bounds(first), without_bounds(second)
    known = np.isfinite(above) & np.isfinite(below) & (above > 0) & (below > 0)
    return np.where(known, first / second, np.where(first >= second, np.inf, 0.0))


@dataclass(frozen=True)
class ScaledRule:
    """One rule with its factor: fitted on the chosen half, mean absolute errors on that half and on the other."""

    rule: str
    factor: float
    error_chosen: float
    error_checked: float


@dataclass(frozen=True)
class EffectiveDimensions:
    """All rules, the best on the chosen half first; the factor of the best on all cells; errors without any rule."""

    rules: tuple[ScaledRule, ...]
    factor: float
    unscaled: tuple[float, float]  # errors of the linear law itself on the two halves
    cells: int


def effective_dimensions(cells: DataFrame) -> EffectiveDimensions:
    """Fit a factor per rule to every second cell (in the order of D, then N, as on a chess board), check on the rest.

    Rows are one per cell. Law: trained-sharing.
    """
    ordered = cells.sort_values(["embed_dim", "state_dim"])
    chosen = chess_board(ordered)
    found = []
    for rule in RULES:
        factor = _fit(rule, ordered[chosen])
        errors = np.abs(scaled_errors(rule, factor, ordered))
        found.append(ScaledRule(rule, factor, float(errors[chosen].mean()), float(errors[~chosen].mean())))
    found.sort(key=lambda rule: rule.error_chosen)
    factor = _fit(found[0].rule, ordered)
    plain = np.abs(scaled_errors(found[0].rule, 1.0, ordered))
    halves = (float(plain[chosen].mean()), float(plain[~chosen].mean()))
    return EffectiveDimensions(tuple(found), factor, halves, len(ordered))


def chess_board(cells: DataFrame) -> NDArray[np.bool_]:
    """Half of the cells of a D-N grid: every second one, in the order of D and of N."""
    places = (np.unique(cells[name], return_inverse=True)[1] for name in ("embed_dim", "state_dim"))
    chosen = np.asarray(sum(places) % 2 == 0)
    if chosen.sum() < 2 or (~chosen).sum() < 2:
        raise ValueError(f"{len(cells)} cells: at least two are needed to choose on and two to check on.")
    return chosen


def scaled_errors(rule: str, factor: float, cells: DataFrame) -> Array:
    """Measured minus predicted."""
    in_D, in_N = RULES[rule]
    D, N, V, N_f, L, measured = (
        cells[name].to_numpy(float)
        for name in ("embed_dim", "state_dim", "vocab_size", "num_facts", "length", "test_accuracy")
    )
    predicted = sharing_law(
        vocab_size=V, num_facts=N_f, embed_dim=D * factor**in_D, state_dim=N * factor**in_N, task="mqar", length=L
    )
    return measured - predicted


def _fit(rule: str, cells: DataFrame) -> float:
    from scipy.optimize import minimize_scalar  # 0.3 s of imports

    best = minimize_scalar(
        lambda log_c: float(np.mean(scaled_errors(rule, float(np.exp(log_c)), cells) ** 2)),
        bounds=(-np.log(LARGEST), np.log(LARGEST)),
        method="bounded",
        options={"xatol": 1e-3},
    )
    return float(np.exp(best.x))


# Laws of the full model


@dataclass(frozen=True)
class LawChoice:
    """One law of full Mamba: mean absolute errors on the half it may be chosen by and on the other; by regime."""

    law: str
    error_chosen: float
    error_checked: float
    regimes: Mapping[str, LawEntry]

    @property
    def error(self) -> float:
        """Over all cells."""
        entries = self.regimes.values()
        return sum(entry.mean_error * entry.cells for entry in entries) / sum(entry.cells for entry in entries)


def law_choices(chosen_in: str, grids: Mapping[str, DataFrame], laws: Sequence[Law]) -> list[LawChoice]:
    """All laws, the best on one half of a regime's cells (as on a chess board) first. Rows are one per cell."""
    half = chess_board(grids[chosen_in])
    found = []
    for law in laws:
        errors = {regime: accuracies(cells) - law_on_cells(law, cells) for regime, cells in grids.items()}
        size = np.abs(errors[chosen_in])
        entries = {regime: entry_of(error) for regime, error in errors.items()}
        found.append(LawChoice(law.name, float(size[half].mean()), float(size[~half].mean()), entries))
    return sorted(found, key=lambda choice: choice.error_chosen)
