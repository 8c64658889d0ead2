"""One variable for all cells: fit the noise coefficient a and the level b of Phi(x - b), x = sqrt(N D / (a N_f + N)).

With the curves of a plot against x: as printed, and as fitted.

Paper: Rem 4.3 (`rem:practical-scaling-law`), Fig. 4 (`fig:scaling-laws-1d-dims`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import ndtr

from recallscope.analysis.compare import dimensions
from recallscope.analysis.rows import CELL_WORDS, Reduce, Row, group_cells, reducer
from recallscope.theory.extremes import max_moments, sqrt_two_log, typical_max
from recallscope.theory.laws.paper import inv_sigma
from recallscope.theory.problem import Problem

Form = Literal["phi", "two-moment"]

FEWEST_CELLS = 4  # two numbers are fitted, and something should be left to disagree with
_LOG_A = (-7.0, 5.0)  # a between a thousandth and 150: beyond, the data say nothing of it


@dataclass(frozen=True)
class Fit:
    """a and b with 95 % intervals, how well they do, and what theory says b should be."""

    form: Form
    a: float
    b: float
    a_interval: tuple[float, float]
    b_interval: tuple[float, float]
    mean_error: float
    max_error: float
    cells: int
    runs: int
    b_printed: float  # sqrt(2 log V)
    b_typical: float  # m_V for the plain form, the exact mean of the maximum of V - 1 for the two-moment one


def fit_collapse(rows: Sequence[Row], generator: np.random.Generator, **options: Any) -> Fit:
    """The fit alone; options as of `fit_with_draws`."""
    return fit_with_draws(rows, generator, **options)[0]


def fit_with_draws(
    rows: Sequence[Row],
    generator: np.random.Generator,
    *,
    form: Form = "phi",
    reduce: Reduce = "best",
    bootstrap: int = 200,
    axes: Sequence[str] = CELL_WORDS,
    noise_coeff: float | None = None,
) -> tuple[Fit, NDArray[np.float64]]:
    """Least squares over the cells, and a and b of every resampling (`bootstrap 2`); `noise_coeff` keeps a as given.

    Intervals are from resampling cells and, for the mean of seeds, seeds within each. The form `two-moment` is P2:
    Phi((x - b) / sqrt(1 + v)), with v the exact variance of the largest of V - 1 normals.
    Departs: the paper takes a = 1 and 5/4 from theory and a / 2 for full Mamba by eye; here both numbers are measured.
    """
    cells = list(group_cells(rows, axes).values())
    if len(cells) < FEWEST_CELLS:
        raise ValueError(
            f"{len(cells)} cells: two numbers are fitted, so at least {FEWEST_CELLS} are needed. Measure more."
        )
    problem = dimensions([members[0] for members in cells])
    if len(set(problem.V)) > 1:
        raise ValueError("b depends on the vocabulary, and these runs have several. Fit each vocab_size by itself.")
    seeds = [np.array([row["test_accuracy"] for row in members], float) for members in cells]
    one_number = reducer(reduce)
    accuracy = np.array([one_number(values) for values in seeds])
    start = (1.0 if noise_coeff is None else noise_coeff, float(typical_max(problem.V[0])))
    a, b = _fit(problem, accuracy, form, start=start, wide=True, fixed=noise_coeff is not None)
    draws = []
    for _ in range(bootstrap):
        chosen = generator.integers(len(cells), size=len(cells))
        again = np.array([one_number(drawn_again(seeds[index], reduce, generator)) for index in chosen])
        draws.append(_fit(problem.take(chosen), again, form, start=(a, b), fixed=noise_coeff is not None))
    drawn = np.array(draws).reshape(-1, 2)
    low, high = np.quantile(drawn, (0.025, 0.975), axis=0) if draws else np.full((2, 2), np.nan)
    errors = np.abs(collapsed(problem, a, b, form) - accuracy)
    V = problem.V[0]
    fit = Fit(
        form=form, a=a, b=b,
        a_interval=(float(low[0]), float(high[0])), b_interval=(float(low[1]), float(high[1])),
        mean_error=float(errors.mean()), max_error=float(errors.max()), cells=len(cells), runs=len(rows),
        b_printed=float(sqrt_two_log(V)), b_typical=float(typical_max(V) if form == "phi" else max_moments(V - 1)[0]),
    )  # fmt: skip
    return fit, drawn


def drawn_again(seeds: NDArray[np.float64], reduce: Reduce, generator: np.random.Generator) -> NDArray[np.float64]:
    """A cell's seeds for one resampling: drawn anew for their mean, all of them for their best.

    The best of n seeds drawn with replacement is lower than the best of n seeds: it would shift every interval.
    """
    return generator.choice(seeds, len(seeds)) if reduce == "mean" else seeds


def collapsed(problem: Problem, a: float, b: float, form: Form) -> NDArray[np.float64]:
    """The fitted curve at some cells."""
    width = np.sqrt(1 + max_moments(problem.V - 1)[1]) if form == "two-moment" else 1.0
    return np.asarray(ndtr((inv_sigma(problem, a=a) - b) / width))


def _fit(
    problem: Problem,
    accuracy: NDArray[np.float64],
    form: Form,
    *,
    start: tuple[float, float],
    wide: bool = False,
    fixed: bool = False,
) -> tuple[float, float]:
    """Best a and b; from several beginnings if `wide`, as the valley is long and bent. `fixed` keeps a as it starts."""
    width = np.sqrt(1 + max_moments(problem.V[:1] - 1)[1]) if form == "two-moment" else 1.0

    def residual(values: NDArray[np.float64]) -> NDArray[np.float64]:  # in log a, which keeps a positive
        a = float(np.exp(np.clip(values[0], *_LOG_A)))
        return np.asarray(ndtr((inv_sigma(problem, a=a) - values[1]) / width)) - accuracy

    if fixed:
        x = inv_sigma(problem, a=start[0])
        level = least_squares(lambda b: ndtr((x - b) / width) - accuracy, start[1:], method="lm")
        return start[0], float(level.x[0])
    beginnings = [start, (0.3, start[1]), (4.0, start[1])] if wide else [start]
    found = [least_squares(residual, (np.log(a), b), method="lm") for a, b in beginnings]
    best = min(found, key=lambda result: result.cost)
    return float(np.exp(np.clip(best.x[0], *_LOG_A))), float(best.x[1])


Array = NDArray[np.float64]


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
    rows: Sequence[Row],
    noise_coeff: float,
    generator: np.random.Generator,
    *,
    axes: Sequence[str] = ("embed_dim", "state_dim"),
    group_word: str = "state_dim",
    bootstrap: int = 200,
) -> CollapseCurve:
    """The best of each cell's seeds against x, and Phi(x - b) with b as printed and as fitted.

    Paper: Rem 4.3 (`rem:practical-scaling-law`), Thm 4.6 (`thm:multi-layer-recall-scaling-laws`): N counts all layers.
    """
    cells = list(group_cells(rows, axes).values())
    problem = dimensions([members[0] for members in cells])
    best = reducer("best")
    x = inv_sigma(problem, a=noise_coeff)
    accuracy = np.array([best(np.array([row["test_accuracy"] for row in members])) for members in cells])
    line = np.linspace(0, max(6.0, 1.05 * float(x.max())), 200)
    printed_level = float(sqrt_two_log(problem.V[0]))
    level = free = fitted = band = None
    if len(cells) >= FEWEST_CELLS:
        level, draws = fit_with_draws(rows, generator, axes=axes, bootstrap=bootstrap, noise_coeff=noise_coeff)
        free = fit_with_draws(rows, generator, axes=axes, bootstrap=bootstrap)[0]
        fitted = np.asarray(ndtr(line - level.b))
        if len(draws):
            low, high = np.quantile(ndtr(line - draws[:, 1:]), (0.025, 0.975), axis=0)
            band = (low, high)
    return CollapseCurve(
        x=x, accuracy=accuracy,
        group=np.array([float(members[0].get(group_word) or 1) for members in cells]),
        line=line, printed=np.asarray(ndtr(line - printed_level)), printed_level=printed_level,
        fitted=fitted, band=band, level=level, free=free,
    )  # fmt: skip
