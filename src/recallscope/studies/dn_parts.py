"""The D-N grids of the linear and the full model, which several studies read: their presets, parts, labels and rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from pandas import DataFrame, Series

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.collapse import Fit, fit_collapse
from recallscope.analysis.seed_noise import SeedNoise
from recallscope.analysis.table import CELL_FIELDS, COMPARED, learned
from recallscope.presets import Fields, Preset
from recallscope.studies.experiment import Part, Scale, part
from recallscope.studies.paper_runs import PaperRuns
from recallscope.tasks.associative_recall import MQARSpec

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
