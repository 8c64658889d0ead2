"""Full Mamba beside the linear model: is its noise coefficient a half, or is it a linear model of other dimensions?

Paper: Fig. 4 (`fig:scaling-laws-1d-dims`), where a of the full model is said to be half of the linear one's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from recallscope.analysis.collapse import A_BOUNDS, FEWEST_CELLS, curve_misses, fit_curves, without_bounds
from recallscope.analysis.compare import dimensions, law_on_cells
from recallscope.analysis.many_fits import many_least_squares
from recallscope.analysis.rows import COMPARED, Row, accuracies, group_cells, reducer
from recallscope.analysis.seed_noise import Ends, SeedNoise, ends_of, seed_noise
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
_CELL = ("task", "vocab_size", "num_facts", "length", "embed_dim", "state_dim")


@dataclass(frozen=True)
class Ratio:
    """a of the first over a of the second: each with its own b, and with one b for both; 95 % intervals."""

    value: float
    interval: Ends
    shared_b: float
    shared_b_interval: Ends
    cells: int


def coefficient_ratio(
    first: Sequence[Row],
    second: Sequence[Row],
    generator: np.random.Generator,
    *,
    bootstrap: int = 400,
    noises: tuple[SeedNoise, SeedNoise] | None = None,
) -> Ratio:
    """Fit Phi(x - b) to both kinds on the cells they share, mean of seeds against mean of seeds.

    Intervals are from resampling cells, the same for both, with the seed noise of each added.
    """
    groups = group_cells(first, _CELL), group_cells(second, _CELL)
    shared = [cell for cell in groups[0] if cell in groups[1]]
    if len(shared) < FEWEST_CELLS:
        raise ValueError(f"{len(shared)} cells in common: at least {FEWEST_CELLS} are needed.")
    problem = dimensions([groups[0][cell][0] for cell in shared])
    one_number = reducer(COMPARED)
    chosen = generator.integers(len(shared), size=(bootstrap, len(shared)))
    chosen = np.concatenate((np.arange(len(shared))[None], chosen))  # first the cells themselves
    both = []
    for group, noise in zip(groups, noises or (seed_noise(first), seed_noise(second)), strict=True):
        members = [accuracies(group[cell]) for cell in shared]
        measured = np.array([one_number(values) for values in members])
        deviations = noise.deviations(measured, np.array([len(values) for values in members]))
        moved = noise.draws(chosen.shape, generator) * deviations[chosen]
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


def effective_dimensions(cells: Sequence[Row]) -> EffectiveDimensions:
    """Fit a factor per rule to every second cell (in the order of D, then N, as on a chess board), check on the rest.

    Rows are one per cell. Law: trained-sharing.
    """
    ordered = sorted(cells, key=lambda cell: (cell["embed_dim"], cell["state_dim"]))
    chosen = chess_board(ordered)
    found = []
    for rule in RULES:
        factor = _fit(rule, [cell for cell, mine in zip(ordered, chosen, strict=True) if mine])
        errors = np.abs(scaled_errors(rule, factor, ordered))
        found.append(ScaledRule(rule, factor, float(errors[chosen].mean()), float(errors[~chosen].mean())))
    found.sort(key=lambda rule: rule.error_chosen)
    factor = _fit(found[0].rule, ordered)
    plain = np.abs(scaled_errors(found[0].rule, 1.0, ordered))
    halves = (float(plain[chosen].mean()), float(plain[~chosen].mean()))
    return EffectiveDimensions(tuple(found), factor, halves, len(ordered))


def chess_board(cells: Sequence[Row]) -> NDArray[np.bool_]:
    """Half of the cells of a D-N grid: every second one, in the order of D and of N."""
    Ds, Ns = (sorted({cell[name] for cell in cells}) for name in ("embed_dim", "state_dim"))
    chosen = np.array([(Ds.index(c["embed_dim"]) + Ns.index(c["state_dim"])) % 2 == 0 for c in cells], bool)
    if chosen.sum() < 2 or (~chosen).sum() < 2:
        raise ValueError(f"{len(cells)} cells: at least two are needed to choose on and two to check on.")
    return chosen


def scaled_errors(rule: str, factor: float, cells: Sequence[Row]) -> Array:
    """Measured minus predicted."""
    in_D, in_N = RULES[rule]
    D, N, V, N_f, L, measured = (
        np.array([cell[name] for cell in cells], float)
        for name in ("embed_dim", "state_dim", "vocab_size", "num_facts", "length", "test_accuracy")
    )
    predicted = sharing_law(
        vocab_size=V, num_facts=N_f, embed_dim=D * factor**in_D, state_dim=N * factor**in_N, task="mqar", length=L
    )
    return measured - predicted


def _fit(rule: str, cells: Sequence[Row]) -> float:
    from scipy.optimize import minimize_scalar  # .3 s of imports

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

    def __str__(self) -> str:
        return f"{self.law} {self.error_chosen:.4f} and {self.error_checked:.4f}"


def law_choices(chosen_in: str, grids: Mapping[str, Sequence[Row]], laws: Sequence[Law]) -> list[LawChoice]:
    """All laws, the best on one half of a regime's cells (as on a chess board) first. Rows are one per cell."""
    half = chess_board(grids[chosen_in])
    found = []
    for law in laws:
        errors = {regime: accuracies(cells) - law_on_cells(law, cells) for regime, cells in grids.items()}
        size = np.abs(errors[chosen_in])
        entries = {regime: entry_of(error) for regime, error in errors.items()}
        found.append(LawChoice(law.name, float(size[half].mean()), float(size[~half].mean()), entries))
    return sorted(found, key=lambda choice: choice.error_chosen)
