"""The framework of experiments: what one is made of, and the registry that finds them.

An experiment is one file: its runs at three scales, the findings and figures made of them, its presets and claims.

    @experiment("layers", "recall depends on Lambda N", claims=("fig-5",), presets={"layers": LAYERS})
    def layers(scale: Scale) -> Iterator[Part]:
        yield part("layers MQAR", LAYERS, axes={"state_dim": [2, 4], "num_layers": [1, 2]})

    @layers.findings
    def layer_findings(runs: PaperRuns) -> Iterator[Finding]: ...

    @layers.figure("fig-5", "layers: N-Lambda grid")
    def layers_figure(runs: PaperRuns) -> Figure: ...

The studies of this package are listed in `STUDIES`; files anywhere else are named in RECALLSCOPE_PLUGINS.
"""

from __future__ import annotations

import heapq
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from pandas import DataFrame

from recallscope.atomic import write_atomically
from recallscope.presets import Fields, Preset
from recallscope.registry import Registry, suggestion
from recallscope.runs.grid import Cell, Grid
from recallscope.runs.plan import estimated_cost
from recallscope.specs import RunSpec, TaskSpec
from recallscope.studies.claims import Finding

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from recallscope.studies.paper_runs import PaperRuns


# quick: seconds to two minutes, the same questions on tasks small enough for a demonstration. small: two cores and an
# evening, the paper's tasks and recipes on coarser axes with fewer seeds; where a batch, a schedule or a size had to be
# cut as well, the part says so. paper: the axes, seeds and steps of the paper.
Scale = Literal["quick", "small", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
MANY = 2000  # runs that are counted without making them

Misses = dict[str, dict[str, list[tuple[Any, float]]]]  # group, law: every cell, and measured minus predicted
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Part:
    """One grid of training runs of an experiment; `cut` says what else than axes and seeds is less than the paper's.

    Parts of a lower `turn` are run before others; within a turn long runs come first.
    """

    label: str
    grid: Grid
    keep_weights: bool = False
    cut: str = ""
    turn: int = 0

    @cached_property
    def cells(self) -> list[Cell]:
        """Every run of the grid."""
        return self.grid.cells()


def part(
    label: str,
    preset: Preset,
    *,
    task: Fields | None = None,
    model: Fields | None = None,
    train: Fields | None = None,
    axes: Mapping[str, Sequence[Any]],
    zipped: Mapping[str, Sequence[Any]] | None = None,
    derived: Mapping[str, str] | None = None,
    skip: Sequence[str] = (),
    keep_weights: bool = False,
    cut: str = "",
    turn: int = 0,
) -> Part:
    """A part around a preset: fields that are changed, axes that are crossed, axes that are walked together."""
    base = preset.fields(task=task, model=model, train=train)
    grid = Grid(base, axes=axes, zipped=[zipped] if zipped else [], derived=derived or {}, skip=skip, name=label)
    return Part(label, grid, keep_weights, cut, turn)


# Circuits written by hand are measured without any training, and kept in STORE/designed. Paper: App. E.1
# (`app-subsec:designed-weights`), column (a) of Fig. 1 (`fig:scaling-laws-2d-dims`).

_VARIED = ("embed_dim", "state_dim", "seed", "test_accuracy", "test_queries")  # what differs between the circuits


@dataclass(frozen=True)
class DesignedPart:
    """A part of an experiment that is not trained: a task, the D and N that circuits are written for, and how often."""

    label: str
    task: TaskSpec
    embed_dims: tuple[int, ...]
    state_dims: tuple[int, ...]
    draws: int
    num_sequences: int

    def path(self, root: Path, scale: str) -> Path:
        """The file of the measured circuits in a store."""
        name = "".join(letter if letter.isalnum() else "-" for letter in self.label.lower()).strip("-")
        return root / "designed" / f"{name.replace('--', '-')}-{scale}.json"

    def measure(self, root: Path, scale: str) -> None:
        """Measure the circuits and keep them in a store; what is there already is not measured again."""
        if not self.path(root, scale).exists():
            sequences = self.num_sequences // self.draws or 1
            rows = designed_rows(
                self.task, self.embed_dims, self.state_dims, seeds=range(self.draws), num_sequences=sequences
            )
            self.write(root, scale, list(rows))

    def write(self, root: Path, scale: str, rows: list[dict[str, Any]]) -> None:
        """Keep measured circuits as JSON: what they share once, what differs as a table."""
        shared = {name: value for name, value in rows[0].items() if name not in _VARIED}
        cells = [[row[name] for name in _VARIED] for row in rows]
        about = {"label": self.label, "draws": self.draws, "shared": shared, "columns": _VARIED, "cells": cells}
        write_atomically(self.path(root, scale), json.dumps(about).replace("], [", "],\n[").encode() + b"\n")

    def read(self, root: Path, scale: str) -> DataFrame:
        """Measured circuits of a store; none if they were not measured."""
        path = self.path(root, scale)
        if not path.exists():
            return DataFrame()
        kept = json.loads(path.read_text())
        return DataFrame(kept["cells"], columns=kept["columns"]).assign(**kept["shared"])


def designed_rows(
    task: TaskSpec,
    embed_dims: Iterable[int],
    state_dims: Iterable[int],
    *,
    seeds: Iterable[int] = (0,),
    num_sequences: int = 1000,
) -> Iterator[dict[str, Any]]:
    """Accuracy of the designed circuit for every D and N and every seed, from which its codes and sequences are drawn.

    Paper: App. E.1 (`app-subsec:designed-weights`).   Holds for: N <= D; other cells are left out.
    """
    import torch

    from recallscope.circuits.linear import designed_circuit
    from recallscope.train.evaluate import evaluate

    fields = task.model_dump(mode="json")
    shared = {"task": fields.pop("kind"), **fields, "model": "linear_mamba", "num_layers": 1}
    embed_dims, state_dims = tuple(embed_dims), tuple(state_dims)
    for seed in seeds:
        for D in embed_dims:
            for N in (N for N in state_dims if N <= D):
                generator = torch.Generator().manual_seed(seed)
                model = designed_circuit(task.vocab_size, D, N, generator)
                score = evaluate(model, task, num_sequences, generator)
                measured = {"test_accuracy": score.accuracy, "test_queries": score.queries}
                yield shared | {"embed_dim": D, "state_dim": N, "seed": seed} | measured


@dataclass(frozen=True)
class PaperFigure:
    """A figure: its name (a key of claims.toml, or one of our own), what it shows, and the experiment it is made of.

    `draw` takes the `PaperRuns` of a store. Without an experiment there is nothing to read, and it takes None as well.
    """

    name: str
    title: str
    experiment: str | None
    draw: Callable[[Any], Figure]


def _decorator(kind: str) -> Callable[[Experiment, Function], Function]:
    def keep(self: Experiment, function: Function) -> Function:
        self._functions.setdefault(kind, []).append(function)
        return function

    return keep


@dataclass(eq=False)
class Experiment:
    """What the paper shows, the claims it stands for, the runs that show it at each scale, and what is made of them."""

    name: str
    title: str
    claims: tuple[str, ...]  # keys of claims.toml
    make_parts: Callable[[Scale], Iterable[Part | DesignedPart]]
    presets: Mapping[str, Preset] = field(default_factory=dict)
    reads: tuple[str, ...] = ()  # other experiments whose runs its findings and figures are made of
    figures: dict[str, PaperFigure] = field(default_factory=dict)
    _made: dict[Scale, tuple[Part | DesignedPart, ...]] = field(default_factory=dict)
    _functions: dict[str, list[Callable[..., Any]]] = field(default_factory=dict)  # by decorator

    def all_parts(self, scale: Scale) -> tuple[Part | DesignedPart, ...]:
        """Everything that is run or measured at a scale."""
        if scale not in self._made:
            self._made[scale] = tuple(self.make_parts(scale))
        return self._made[scale]

    def parts(self, scale: Scale) -> tuple[Part, ...]:
        """The training runs of a scale."""
        return tuple(one for one in self.all_parts(scale) if isinstance(one, Part))

    def designed(self, scale: Scale) -> tuple[DesignedPart, ...]:
        """The circuits that are measured at a scale."""
        return tuple(one for one in self.all_parts(scale) if isinstance(one, DesignedPart))

    def cells(self, scale: Scale) -> dict[str, Cell]:
        """Every run of a scale once, by its hash."""
        return {cell.run: cell for one in self.parts(scale) for cell in one.cells}

    def progress(self, scale: Scale, runs: Mapping[str, Any]) -> tuple[int, int]:
        """How many runs a scale asks for, and how many are among these, by name with the fields of their specs.

        Thousands are counted without being made: a run that two of their parts ask for would count twice.
        """
        grids = [one.grid for one in self.parts(scale)]
        asked = sum(grid.count() for grid in grids)
        if asked > MANY:
            return asked, len({run for grid in grids for run in grid.among(runs)})
        cells = self.cells(scale)
        return len(cells), len(cells.keys() & runs.keys())

    # Decorators: each adds the function below it to the experiment, and returns it unchanged.

    findings = _decorator("findings")  # (runs): questions put to the runs
    law_cells = _decorator("law_cells")  # (runs): groups of runs, by name, that every law is held against
    law_notes = _decorator("law_notes")  # (runs, misses): sentences under the law table, from the errors of every law
    after_runs = _decorator("after_runs")  # (runs): work that `reproduce` does once the training runs are there
    tables = _decorator("tables")  # (runs, console): tables that `reproduce` prints above the findings
    summary = _decorator("summary")  # (runs): what the figures show, one sentence that `reproduce` prints at the end

    def figure(self, name: str, title: str, **options: Any) -> Callable[[Function], Function]:
        """A figure drawn from the runs, by a function that takes them and these options."""

        def keep(function: Function) -> Function:
            self.figures[name] = PaperFigure(name, title, self.name, partial(function, **options))
            return function

        return keep

    def call(self, kind: str, *arguments: Any) -> list[Any]:
        """What the functions below one decorator make of the runs of a store, one after the other."""
        return [function(*arguments) for function in self._functions.get(kind, ())]

    def find(self, runs: PaperRuns) -> list[Finding]:
        """All findings."""
        return [finding for found in self.call("findings", runs) for finding in found]

    def summaries(self, runs: PaperRuns) -> list[str]:
        """Sentences that say what the figures show, with measured numbers; none without runs."""
        return [sentence for sentence in self.call("summary", runs) if sentence]

    def cells_for_laws(self, runs: PaperRuns) -> dict[str, DataFrame]:
        """Rows of the law table, by group."""
        return {group: rows for groups in self.call("law_cells", runs) for group, rows in groups.items()}


STUDIES: Registry[Experiment] = Registry(  # in the order of the report: the paper's experiments, then our own
    "study",
    {
        "dn-grid": "recallscope.studies.paper.dn_grid:dn_grid",
        "curves": "recallscope.studies.paper.curves:curves",
        "layers": "recallscope.studies.paper.layers:layers",
        "heads": "recallscope.studies.paper.heads:heads",
        "large-vocab": "recallscope.studies.paper.large_vocab:large_vocab",
        "repeated-keys": "recallscope.studies.paper.repeated_keys:repeated_keys",
        "minimality": "recallscope.studies.paper.minimality:minimality",
        "mechanism": "recallscope.studies.paper.mechanism:mechanism",
        "seeds": "recallscope.studies.paper.seeds:seeds",
        "small-vocab": "recallscope.studies.own.small_vocab:small_vocab",
        "architectures": "recallscope.studies.own.architectures:architectures",
        "new-architectures": "recallscope.studies.own.new_architectures:new_architectures",
        "components": "recallscope.studies.own.components:components",
        "large-sizes": "recallscope.studies.own.large_sizes:large_sizes",
        "fresh-cells": "recallscope.studies.own.fresh_cells:fresh_cells",
        "longer": "recallscope.studies.own.longer:longer",
        "state-precision": "recallscope.studies.own.state_precision:state_precision",
        "tradeoff": "recallscope.studies.own.tradeoff:tradeoff",
        "correlated-keys": "recallscope.studies.own.correlated_keys:correlated_keys",
    },
)


def experiment(
    name: str,
    title: str,
    *,
    claims: Sequence[str] = (),
    presets: Mapping[str, Preset] | None = None,
    reads: Sequence[str] = (),
) -> Callable[[Callable[[Scale], Iterable[Part | DesignedPart]]], Experiment]:
    """Make an experiment of the function that gives its parts at a scale, and register it; ours have no claims."""

    def register(make_parts: Callable[[Scale], Iterable[Part | DesignedPart]]) -> Experiment:
        made = Experiment(name, title, tuple(claims), make_parts, presets or {}, tuple(reads))
        STUDIES.add(name, made, module=make_parts.__module__)
        return made

    return register


def experiments() -> list[Experiment]:
    """All experiments, in their order."""
    return list(STUDIES)


def find_experiment(name: str) -> Experiment:
    """The experiment of that name."""
    if name not in STUDIES:
        names = ", ".join(one.name for one in experiments())
        raise ValueError(f"{name!r} is not an experiment. Choose one of {names}.")
    return STUDIES.find(name)


def paper_figures() -> dict[str, PaperFigure]:
    """Every figure by name: those of the paper by number, then our own."""
    from recallscope.studies.circuit_overview import OVERVIEW

    found = {OVERVIEW.name: OVERVIEW}
    for one in experiments():
        found |= one.figures
    return dict(sorted(found.items(), key=lambda item: counting_order(item[0])))


def find_figures(name: str) -> list[PaperFigure]:
    """The figures of an experiment, the figure of that name, or all."""
    if name in STUDIES:
        return sorted(STUDIES.find(name).figures.values(), key=lambda figure: counting_order(figure.name))
    figures = paper_figures()
    if name == "all":
        return list(figures.values())
    if name in figures:
        return [figures[name]]
    known = [*figures, *(one.name for one in experiments()), "all"]
    raise ValueError(f"{name!r} must be a figure or an experiment. {suggestion(name, known)}")


def counting_order(name: str) -> list[tuple[int, str]]:
    """A sorting key with fig-2 before fig-10."""
    return [(int(word), "") if word.isdecimal() else (0, word) for word in re.split(r"(\d+)", name)]


def all_findings(runs: PaperRuns) -> dict[str, list[Finding]]:
    """What all experiments say, in their order."""
    return {one.name: one.find(runs) for one in experiments()}


# What experiments cost

# Over the runs of results/paper, one thread of the machine they were made on. Single experiments are up to five
# times cheaper (minimality: 0.013) or dearer (fresh-cells: 0.30), as small runs spend most of their time on overhead.
SECONDS_PER_BILLION = 0.0617  # multiplications of `estimated_cost`
WORKERS = (16, 64, 256, 1024)
HOUR, DAY = 3_600, 86_400


@cache
def core_seconds(experiment: str, scale: Scale) -> float:
    """Estimated time of all runs of an experiment at a scale, on one core."""
    return sum(_seconds_of_grid(part.grid) for part in find_experiment(experiment).parts(scale))


def seconds_of(run: RunSpec) -> float:
    """Estimated time of one run, on one core."""
    return estimated_cost(run) / 1e9 * SECONDS_PER_BILLION


def _seconds_of_grid(grid: Grid) -> float:
    """All runs of a grid; those that differ in the seed cost the same."""
    seeds = grid.axes.get("seed", (0,))
    one = replace(grid, axes={**grid.axes, "seed": seeds[:1]}) if "seed" in grid.axes else grid
    return len(seeds) * sum(seconds_of(cell.spec) for cell in one.cells())


def schedule(seconds: Iterable[float], workers: int) -> float:
    """Wall time of a sweep that starts its longest runs first, as the driver does."""
    free = [0.0] * workers
    for length in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def costs_table(runs: PaperRuns, page: str = "") -> Iterator[str]:
    """What the paper's own axes cost, by experiment; runs that several share count with the first."""
    yield f"| experiment | runs | core days | longest run, hours | {' | '.join(f'days on {w}' for w in WORKERS)} |"
    yield "|---|" + "---:|" * (3 + len(WORKERS))
    every: dict[str, float] = {}
    by_experiment: dict[str, list[float]] = {}
    for one in experiments():
        new = {run: seconds_of(cell.spec) for run, cell in one.cells("paper").items() if run not in every}
        every |= new
        by_experiment[one.name] = list(new.values())
    for name, lengths in (by_experiment | {"**all**": list(every.values())}).items():
        if lengths:
            days = " | ".join(f"{schedule(lengths, workers) / DAY:.2f}" for workers in WORKERS)
            yield f"| {name} | {len(lengths):,} | {sum(lengths) / DAY:.2f} | {max(lengths) / HOUR:.1f} | {days} |"
