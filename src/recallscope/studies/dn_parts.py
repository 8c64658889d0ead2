"""The D-N grids of the linear and the full model, which several studies read: their presets, parts, labels and rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame, Series

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.collapse import (
    A_BOUNDS,
    FEWEST_CELLS,
    Fit,
    curve_misses,
    fit_collapse,
    fit_curves,
    many_least_squares,
    without_bounds,
)
from recallscope.analysis.compare import dimensions, law_on_cells
from recallscope.analysis.seed_noise import Ends, SeedNoise, ends_of
from recallscope.analysis.table import CELL_FIELDS, COMPARED, accuracies, learned
from recallscope.presets import Fields, Preset
from recallscope.studies.experiment import Part, Scale, part
from recallscope.studies.law_table import LawEntry, entry_of
from recallscope.studies.paper_runs import PaperRuns
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.theory.extremes import typical_max
from recallscope.theory.law import Law
from recallscope.theory.laws.sharing import sharing_law
from recallscope.theory.problem import Problem

# Tab. 1's letters, by the row of Fig. 7 (`app-fig:scaling-laws-2d-dims`)
REGIMES: dict[str, Fields] = {
    "i": {"vocab_size": 1024, "num_facts": 16},
    "ii": {"vocab_size": 512, "num_facts": 32},
    "iii": {"vocab_size": 512, "num_facts": 16},
}
LINEAR = Preset(
    "D-N grids of the linear model (Fig. 1 c), regime (iii)",
    {"kind": "mqar", **REGIMES["iii"]},
    {"kind": "linear_mamba", "embed_dim": 32, "state_dim": 16},
    seeds=3,
)
FULL = Preset(
    "D-N grids of full Mamba (Fig. 1 d), regime (iii)",
    {"kind": "mqar", **REGIMES["iii"]},
    {"kind": "mamba", "embed_dim": 32, "state_dim": 16},
    {"flat_steps": 5900, "decay_steps": 14000, "clip_norm": 0.75, "stop_accuracy": 0.999, "eval_every": 1000},
    seeds=5,
)


def part_label(model: str, task: str, regime: str) -> str:
    """How parts of the D-N grids are named, such as `linear MQAR (iii)`."""
    return f"{model} {task.upper()} ({regime})"


LINEAR_GRIDS = {part_label("linear", task, regime): (task, regime) for task in ("mqar", "ar") for regime in REGIMES}
DESIGNED = {regime: part_label("designed", "mqar", regime) for regime in REGIMES}
EXAMPLE = "the authors' small example, linear"
FULL_GRIDS = {regime: part_label("full", "mqar", regime) for regime in REGIMES}
FULL_EXAMPLE = FULL_GRIDS["iii"]
LARGE_BATCH = "linear AR (iii), batch 512"
VOCABULARIES = "large vocabularies"  # the grid of Fig. 11
ALL_LINEAR = "all linear grids"
BOOTSTRAP = 400
AXES = ("embed_dim", "state_dim")

_SMALL_EXAMPLE = {"embed_dim": [16, 32, 48, 64], "state_dim": [8, 16, 24, 32]}
_PAPER_AXES = {"embed_dim": range(2, 65, 2), "state_dim": range(2, 33)}
_LESS = {"batch_size": 32, "eval_size": 1000}
_WIDE = ["state_dim > embed_dim"]  # these cells are left empty
_ONCE = ["seed > 0 and (embed_dim < 16 or state_dim < 4 or state_dim > 16)"]  # further seeds in the transition only


def linear_parts(scale: Scale) -> Iterator[Part]:
    """The authors' small example, the six linear grids, and one of ours with a larger batch."""
    if scale != "paper":
        cut = "batch 32 and test sets of 1000, as published with the paper"
        yield part(EXAMPLE, LINEAR, train=_LESS, axes={**_SMALL_EXAMPLE, "seed": [0]}, skip=_WIDE, cut=cut)
    if scale == "quick":
        return
    axes = {"embed_dim": [8, 16, 32, 48, 64], "state_dim": [2, 4, 8, 16, 32]} if scale == "small" else _PAPER_AXES
    seeds = {"seed": range(LINEAR.seeds)}
    skip = _WIDE + _ONCE if scale == "small" else _WIDE
    for label, (task, regime) in LINEAR_GRIDS.items():
        yield part(label, LINEAR, task={"kind": task, **REGIMES[regime]}, axes={**axes, **seeds}, skip=skip)
    if scale == "small":  # one question a sequence: does AR lack recall, or training?
        task_of_ours = {"kind": "ar", **REGIMES["iii"]}
        cut = "our own part, with batch 512"
        one_seed = {**axes, "seed": [0]}
        yield part(
            LARGE_BATCH, LINEAR, task=task_of_ours, train={"batch_size": 512}, axes=one_seed, skip=_WIDE, cut=cut
        )


def full_parts(scale: Scale) -> Iterator[Part]:
    """Grids of full Mamba, at the small scale on the axes of the authors' example."""
    if scale == "quick":
        return
    small = scale == "small"
    axes = {**_SMALL_EXAMPLE, "seed": range(2)} if small else {**_PAPER_AXES, "seed": range(FULL.seeds)}
    train, cut = (_LESS, "batch 32 and test sets of 1000, as in the authors' small example") if small else ({}, "")
    for regime, letters in REGIMES.items():
        yield part(FULL_GRIDS[regime], FULL, task=letters, train=train, axes=axes, skip=_WIDE, cut=cut)


@dataclass(frozen=True)
class BothModels:
    """Runs of the full and the linear model in one regime; of (iii), linear ones of the authors' small example.

    Full models that stayed at chance, though another seed of their cell recalls, are left out and counted.
    """

    regime: str
    full: DataFrame
    at_chance: int
    linear: DataFrame
    missing: int

    @property
    def description(self) -> str:
        """How the two were trained, and how many runs there are."""
        left_out = f" ({self.at_chance} that stayed at chance left out)" if self.at_chance else ""
        return "; ".join(
            f"{len(rows)} {name}, batch {rows['batch_size'].iloc[0]}"
            for name, rows in ((f"full runs{left_out}", self.full), ("linear runs", self.linear))
        )


def full_and_linear(runs: PaperRuns) -> Iterator[BothModels]:
    """The two models side by side, for every regime in which this scale trains full ones."""
    for regime, letters in REGIMES.items():
        full = FULL_GRIDS[regime]
        linear = EXAMPLE if regime == "iii" and EXAMPLE in runs.parts else part_label("linear", "mqar", regime)
        if full in runs.parts:
            rows = runs.rows(full)
            rows = rows[rows.reindex(columns=list(letters)).eq(Series(letters)).all(axis=1)]  # of this very task
            kept = learned(rows)
            yield BothModels(regime, kept, len(rows) - len(kept), runs.rows(linear), runs.missing(full, linear))


def mean_grid(rows: DataFrame) -> AccuracyGrid:
    """The mean of seeds over the sizes of task and model."""
    return AccuracyGrid.from_runs(rows, CELL_FIELDS, reduce=COMPARED)


def fit_part(rows: DataFrame, noise: SeedNoise) -> Fit | None:
    """Fit of Phi(x - b) to the means of seeds; None if the cells are too few."""
    try:
        return fit_collapse(mean_grid(rows), np.random.default_rng(0), bootstrap=BOOTSTRAP, noise=noise)
    except ValueError:
        return None


def linear_grids(runs: PaperRuns) -> list[str]:
    """The linear grids of this scale; the authors' small example only where it is the only one."""
    return [label for label in LINEAR_GRIDS if label in runs.parts] or [EXAMPLE]


def regime_part(runs: PaperRuns, model: str, task: str, regime: str) -> Part | None:
    """The part of a D-N grid, if this scale has it for that very task; the authors' example stands in for (iii)."""
    names = [part_label(model, task, regime)]
    if (model, task, regime) == ("linear", "mqar", "iii"):
        names.append(EXAMPLE)
    for name in names:
        found = runs.parts.get(name)
        if found and all(getattr(found.cells[0].spec.task, k) == v for k, v in REGIMES[regime].items()):
            return found
    return None


def regimes_here(runs: PaperRuns, wanted: Sequence[str]) -> list[str]:
    """The regimes wanted that this scale trains linear models on; if none of them, those it does."""
    has = [regime for regime in REGIMES if regime_part(runs, "linear", "mqar", regime)]
    return [regime for regime in wanted if regime in has] or has


def regime_name(regime: str) -> str:
    """Such as (i) V = 1024, L = 64, N_f = 16; the length is that of MQAR."""
    task = MQARSpec.model_validate(REGIMES[regime])
    return f"({regime}) $V={task.vocab_size}$, $L={task.length}$, $N_f={task.num_facts}$"


# Is the noise coefficient of full Mamba half of the linear one (Fig. 4, `fig:scaling-laws-1d-dims`), or is full Mamba a
# linear model of other dimensions?

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
    """a of the first over a of the second: each with its own b, and with one b for both; 95 % intervals."""

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
