"""One variable for all cells: fit the noise coefficient a and the level b of Phi(x - b), x = sqrt(N D / (a N_f + N)).

With the curves of a plot against x, as printed and as fitted; and what is said of one group of runs: its grid, fits,
every law against it, converged seeds.

Paper: Rem 4.3 (`rem:practical-scaling-law`), Fig. 4 (`fig:scaling-laws-1d-dims`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.compare import Comparison, compare_laws, dimensions
from recallscope.analysis.seed_noise import Ends, SeedNoise, ends_of, interval
from recallscope.analysis.table import COMPARED, CONVERGED, Reduce, RunGroup, accuracies, recalls
from recallscope.theory.extremes import max_moments, sqrt_two_log, typical_max
from recallscope.theory.law import LAWS, Law
from recallscope.theory.laws.paper import inv_sigma
from recallscope.theory.problem import Problem

Array = NDArray[np.float64]
Form = Literal["phi", "two-moment"]
FORMS: tuple[Form, ...] = get_args(Form)

FEWEST_CELLS = 4  # two numbers are fitted, and something should be left to disagree with
A_BOUNDS = (float(np.exp(-7)), float(np.exp(5)))  # a thousandth to 150: beyond, the data say nothing of a
MOST_STEPS = 200


def many_least_squares(
    residual: Callable[[Array], tuple[Array, Array]], start: Array, low: Array, high: Array
) -> tuple[Array, Array]:
    """Levenberg and Marquardt's method from each start (problems, parameters), between bounds.

    `residual` gives residuals (problems, n) and their derivatives (problems, n, parameters). Returns parameters and
    sums of squares; a parameter that wants to pass a bound stays exactly on it.
    """
    values = np.clip(start, low, high)
    misses, slopes = residual(values)
    cost = (misses**2).sum(1)
    damping = np.full(len(values), 1e-3)
    for _ in range(MOST_STEPS):
        downhill = -np.einsum("kni,kn->ki", slopes, misses)
        curvature = np.einsum("kni,knj->kij", slopes, slopes)
        held = ((values <= low) & (downhill < 0)) | ((values >= high) & (downhill > 0))
        downhill = np.where(held, 0.0, downhill)
        curvature = np.where(held[:, :, None] | held[:, None, :], 0.0, curvature)
        diagonal = np.einsum("kii->ki", curvature)
        diagonal += damping[:, None] * diagonal + 1e-12 + held
        tried = np.clip(values + np.linalg.solve(curvature, downhill[..., None])[..., 0], low, high)
        new_misses, new_slopes = residual(tried)
        new_cost = (new_misses**2).sum(1)
        better = new_cost <= cost
        settled = (better & (cost - new_cost <= 1e-12 * cost)) | (damping > 1e10)
        values, misses, cost = (
            np.where(better[:, None], tried, values),
            np.where(better[:, None], new_misses, misses),
            np.where(better, new_cost, cost),
        )
        slopes = np.where(better[:, None, None], new_slopes, slopes)
        damping = np.where(better, np.maximum(damping / 10, 1e-12), damping * 10)
        if settled.all():
            break
    return values, cost


@dataclass(frozen=True)
class Fit:
    """a and b with 95 % intervals, how well they do, and what theory says b should be.

    An end of an interval that the data do not bound is 0 or infinity.
    """

    form: Form
    a: float
    b: float
    a_interval: Ends
    b_interval: Ends
    mean_error: float
    max_error: float
    cells: int
    runs: int
    b_printed: float  # sqrt(2 log V)
    b_typical: float  # m_V for the plain form, the exact mean of the maximum of V - 1 for the two-moment one
    noise: SeedNoise  # in the intervals


def fit_collapse(grid: AccuracyGrid, generator: np.random.Generator, **options: Any) -> Fit:
    """The fit alone; options as of `fit_with_draws`."""
    return fit_with_draws(grid, generator, **options)[0]


def fit_with_draws(
    grid: AccuracyGrid,
    generator: np.random.Generator,
    *,
    form: Form = "phi",
    bootstrap: int = 200,
    noise_coeff: float | None = None,
    noise: SeedNoise | None = None,
) -> tuple[Fit, Array]:
    """Least squares over the cells, and a and b of every resampling (`bootstrap 2`); `noise_coeff` keeps a as given.

    Intervals are from resampling cells, each with seed noise added: that of these runs, unless `noise` is given. The
    form `two-moment` is P2: Phi((x - b) / sqrt(1 + v)), with v the exact variance of the largest of V - 1 normals.
    Departs: the paper takes a = 1 and 5/4 from theory and a / 2 for full Mamba by eye; here both numbers are measured.
    """
    cells = grid.measured
    if len(cells) < FEWEST_CELLS:
        raise ValueError(
            f"{len(cells)} cells: two numbers are fitted, so at least {FEWEST_CELLS} are needed. Measure more."
        )
    problem = dimensions(cells)
    if len(set(problem.V)) > 1:
        raise ValueError("b depends on the vocabulary, and these runs have several. Fit each vocab_size by itself.")
    noise = noise or grid.noise
    accuracy, seeds = accuracies(cells), cells["seeds"].to_numpy(int)
    typical = float(typical_max(problem.V[0]))
    starts = [(a, typical) for a in ((1.0, 0.3, 4.0) if noise_coeff is None else (noise_coeff,))]  # a long, bent valley
    found, cost = fit_curves(problem, np.tile(accuracy, (len(starts), 1)), starts, form, fixed=noise_coeff is not None)
    a, b = found[cost.argmin()]
    chosen = generator.integers(len(cells), size=(bootstrap, len(cells)))
    deviations = noise.deviations(accuracy, seeds, grid.reduce)
    again = accuracy[chosen] + noise.draws(chosen.shape, generator) * deviations[chosen]
    drawn, _ = fit_curves(
        problem.take(chosen), np.clip(again, 0, 1), np.tile((a, b), (bootstrap, 1)), form, fixed=noise_coeff is not None
    )
    errors = np.abs(collapsed(problem, a, b, form) - accuracy)
    V = problem.V[0]
    fit = Fit(
        form=form, a=float(a), b=float(b),
        a_interval=ends_of(without_bounds(drawn[:, 0])), b_interval=ends_of(drawn[:, 1]),
        mean_error=float(errors.mean()), max_error=float(errors.max()), cells=len(cells), runs=int(seeds.sum()),
        b_printed=float(sqrt_two_log(V)), b_typical=float(typical_max(V) if form == "phi" else max_moments(V - 1)[0]),
        noise=noise,
    )  # fmt: skip
    return fit, drawn


def collapsed(problem: Problem, a: float, b: float, form: Form) -> Array:
    """The fitted curve at some cells."""
    return np.asarray(ndtr((inv_sigma(problem, a=a) - b) / _width(problem, form)))


def _width(problem: Problem, form: Form) -> float:
    """Of the curve, for one vocabulary."""
    return float(np.sqrt(1 + max_moments(problem.V.flat[0] - 1)[1])) if form == "two-moment" else 1.0


def fit_curves(
    problem: Problem, accuracy: Array, starts: Any, form: Form = "phi", *, fixed: bool = False
) -> tuple[Array, Array]:
    """Best (a, b) for each row of accuracies (fits, cells), from one start each, and the sums of squares.

    `problem` has the cells of every fit, or cells that all share. An a that the data do not bound lies on `A_BOUNDS`.
    """
    begin = np.array(starts, float).reshape(-1, 2)
    if not len(begin):
        return begin, np.zeros(0)
    begin[:, 0] = np.log(begin[:, 0])  # which keeps a positive
    low, high = np.full_like(begin, -np.inf), np.full_like(begin, np.inf)
    low[:, 0], high[:, 0] = (begin[:, 0], begin[:, 0]) if fixed else np.log(A_BOUNDS)
    values, cost = many_least_squares(lambda v: curve_misses(problem, v, accuracy, form), begin, low, high)
    return np.stack((np.exp(values[:, 0]), values[:, 1]), 1), cost


def curve_misses(problem: Problem, values: Array, accuracy: Array, form: Form = "phi") -> tuple[Array, Array]:
    """Predicted minus measured, and the derivatives by log a and b, for rows (log a, b) of `values`."""
    width = _width(problem, form)
    x = inv_sigma(problem, a=np.exp(values[:, :1]))
    z = (x - values[:, 1:]) / width
    density = np.exp(-0.5 * z**2) / (np.sqrt(2 * np.pi) * width)
    by_log_a = -0.5 * x * (1 - x**2 / problem.D)  # as a N_f / (a N_f + N) = 1 - x^2 / D
    return np.asarray(ndtr(z)) - accuracy, np.stack((density * by_log_a, -density), -1)


def without_bounds(a: Array) -> Array:
    """Fitted coefficients, where those that ended at a bound of the fit are 0 or infinity: the data bound them not."""
    low, high = A_BOUNDS
    return np.where(a >= high * (1 - 1e-9), np.inf, np.where(a <= low * (1 + 1e-9), 0.0, a))


@dataclass(frozen=True, eq=False)
class CollapseCurve:
    """Points (x, accuracy) per cell, and curves over `line`; x = sqrt(N D / (a N_f + N)) with the a that was given.

    `level` is the fit of b at this a, and `band` its 95 % band; `free` is the fit of a and b together. Both are None
    with fewer than four cells.
    """

    x: Array
    accuracy: Array
    group: Array  # the size by which points are told apart
    line: Array
    printed: Array  # Phi(x - b) with b as printed, sqrt(2 log V)
    printed_level: float
    fitted: Array | None
    band: tuple[Array, Array] | None
    level: Fit | None
    free: Fit | None


def collapse_curve(
    grid: AccuracyGrid,
    noise_coeff: float,
    generator: np.random.Generator,
    *,
    group_field: str = "state_dim",
    bootstrap: int = 200,
    noise: SeedNoise | None = None,
) -> CollapseCurve:
    """One number of each cell's seeds against x, and Phi(x - b) with b as printed and as fitted.

    Paper: Rem 4.3 (`rem:practical-scaling-law`), Thm 4.6 (`thm:multi-layer-recall-scaling-laws`): N counts all layers.
    """
    cells = grid.measured
    problem = dimensions(cells)
    x = inv_sigma(problem, a=noise_coeff)
    line = np.linspace(0, max(6.0, 1.05 * float(x.max())), 200)
    printed_level = float(sqrt_two_log(problem.V[0]))
    level = free = fitted = band = None
    if len(cells) >= FEWEST_CELLS:
        options: dict[str, Any] = {"bootstrap": bootstrap, "noise": noise}
        level, draws = fit_with_draws(grid, generator, noise_coeff=noise_coeff, **options)
        free = fit_collapse(grid, generator, **options)
        fitted = np.asarray(ndtr(line - level.b))
        if len(draws):
            low, high = np.quantile(ndtr(line - draws[:, 1:]), (0.025, 0.975), axis=0)
            band = (low, high)
    return CollapseCurve(
        x=x, accuracy=accuracies(cells),
        group=cells[group_field].fillna(1).to_numpy(float) if group_field in cells else np.ones(len(cells)),
        line=line, printed=np.asarray(ndtr(line - printed_level)), printed_level=printed_level,
        fitted=fitted, band=band, level=level, free=free,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class GroupFit:
    """What `recallscope fit` says about one group of runs."""

    group: RunGroup
    grid: AccuracyGrid
    fits: tuple[Fit, ...]
    why_not: str  # why there is no fit
    laws: tuple[Comparison, ...]

    @property
    def converged(self) -> int:
        """Runs that left chance and reach the accuracy from which a seed counts as converged."""
        table = self.group.table
        return int(((accuracies(table) >= CONVERGED) & recalls(table)).sum())

    @property
    def sentences(self) -> list[str]:
        """What the group is, how many runs converged, and the fits."""
        runs = len(self.group.table)
        lines = [
            f"{self.group.label}  {runs} runs, {len(self.grid.measured)} cells, {self.grid.reduce} of seeds",
            f"{self.converged} of {runs} runs converged (accuracy >= {CONVERGED:g}, App. K.5, and above chance)",
        ]
        for fit in self.fits:
            width = " / sqrt(1 + v)" if fit.form == "two-moment" else ""
            lines += [
                f"Phi((x - b){width}):  a = {fit.a:.3f} {interval(*fit.a_interval, 3)}"
                f"  b = {fit.b:.3f} {interval(*fit.b_interval, 3)}",
                f"    mean error {fit.mean_error:.4f}, max {fit.max_error:.4f}"
                f"   (theory: b = {fit.b_typical:.3f}, printed {fit.b_printed:.3f})",
            ]
        return [*lines, f"no fit: {self.why_not}"] if self.why_not else lines

    @property
    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "label": self.group.label,
            "fields": self.group.fields,
            "axes": {name: list(values) for name, values in self.grid.axes.items()},
            "accuracy": self.grid.accuracy.tolist(),
            "counts": self.grid.counts.tolist(),
            "reduce": self.grid.reduce,
            "seeds": {"seeds": len(self.group.table), "converged": self.converged},
            "fits": [asdict(fit) for fit in self.fits],
            "no_fit_because": self.why_not or None,
            "laws": [
                {
                    "law": c.law, "mean_error": c.mean_error, "max_error": c.max_error, "bias": c.bias,
                    "left_out": c.left_out,
                    "cells": [{**e.fields, "measured": e.measured, "predicted": e.predicted} for e in c.cells],
                }
                for c in self.laws
            ],
        }  # fmt: skip


def fit_group(
    group: RunGroup,
    laws: Iterable[Law] = LAWS,
    *,
    reduce: Reduce = COMPARED,
    seed: int | None = None,
    bootstrap: int = 200,
) -> GroupFit:
    """Fit both forms of the collapse, and compare the laws, the closest first."""
    grid = AccuracyGrid.from_runs(group.table, group.axes, reduce=reduce, seed=seed)
    fits, why_not = list[Fit](), ""
    try:
        for form in FORMS:
            fits.append(fit_collapse(grid, np.random.default_rng(0), form=form, bootstrap=bootstrap))
    except ValueError as error:
        fits, why_not = [], str(error)
    return GroupFit(group, grid, tuple(fits), why_not, tuple(compare_laws(grid, laws)))
