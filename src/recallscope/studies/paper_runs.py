"""What a store holds of the paper's experiments at one scale: records by part, and circuits measured beside them.

STORE/runs/HASH/record.json           the training runs
STORE/designed/NAME.json              designed circuits, measured (no training, so no record)
STORE/inside/HASH.npz, HASH.json      arrays and scores of a trained model that was inspected
STORE/inside/WHAT.json                what a study measured of trained models, by run

Reading needs no torch, so that every figure can be redrawn without it. Below are the things all figures share: their
sheet, the line that names their runs, and panels of parts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from pandas import DataFrame

from recallscope.analysis.accuracy_grid import AccuracyGrid, planned_grid
from recallscope.analysis.collapse import CollapseCurve, collapse_curve
from recallscope.analysis.seed_noise import SeedNoise, seed_noise
from recallscope.analysis.table import COMPARED, D_N, as_table, learned
from recallscope.atomic import write_atomically
from recallscope.records import RunRecord
from recallscope.runs.store import WEIGHTS, RunStore
from recallscope.studies.experiment import DesignedPart, Experiment, Part, Scale, experiments, find_experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class PaperRuns:
    """A store read as some experiments at one scale, and those whose runs they read; as all of them by default."""

    def __init__(self, store: RunStore, scale: Scale, names: Sequence[str] = ()) -> None:
        self.store = store
        self.scale = scale
        self.names = tuple(names)
        self._noises: dict[str, SeedNoise] = {}
        self._tables: dict[tuple[str, ...], DataFrame] = {}

    @cached_property
    def _experiments(self) -> list[Experiment]:
        chosen = [find_experiment(name) for name in self.names]
        read = [find_experiment(name) for one in chosen for name in one.reads]
        return list(dict.fromkeys(chosen + read)) or experiments()

    @cached_property
    def parts(self) -> dict[str, Part]:
        """All parts of these experiments at this scale, by label."""
        return {part.label: part for one in self._experiments for part in one.parts(self.scale)}

    @cached_property
    def designed_parts(self) -> dict[str, DesignedPart]:
        """The parts that are not trained, by label."""
        return {part.label: part for one in self._experiments for part in one.designed(self.scale)}

    @cached_property
    def _records(self) -> dict[str, RunRecord]:
        return {record.run: record for record in self.store.records()}

    def records(self, label: str) -> list[RunRecord]:
        """Finished runs of a part, in the order of its grid; none if this scale has no such part."""
        cells = self.parts[label].cells if label in self.parts else ()
        return [self._records[cell.run] for cell in cells if cell.run in self._records]

    def rows(self, *labels: str) -> DataFrame:
        """The finished runs of some parts as a table, for grids and fits."""
        if labels not in self._tables:
            self._tables[labels] = as_table(record for label in labels for record in self.records(label))
        return self._tables[labels]

    def losses(self, label: str) -> list[tuple[RunRecord, float]]:
        """The runs of a part with the loss at the end of each, infinite if it diverged."""
        last = [(record, record.history[-1].loss) for record in self.records(label) if record.history]
        return [(record, np.inf if loss is None else loss) for record, loss in last]

    def missing(self, *labels: str) -> int:
        """Runs that these parts ask for and the store lacks."""
        return sum(len(self.parts[label].cells) - len(self.rows(label)) for label in labels if label in self.parts)

    def noise(self, rows: DataFrame) -> SeedNoise:
        """Seed noise of some runs; if none differ in the seed alone, that of all runs of the model in the store."""
        own = seed_noise(rows)
        return own if own.degrees or rows.empty else self._noise_of(rows["model"].iloc[0])

    def _noise_of(self, model: str) -> SeedNoise:
        if model not in self._noises:
            same = (record for record in self._records.values() if record.spec.model.kind == model)
            self._noises[model] = seed_noise(as_table(same))
        return self._noises[model]

    def designed(self, label: str) -> DataFrame:
        """Measured circuits of a part; none if they were not measured."""
        part = self.designed_parts.get(label)
        return part.read(self.store.root, self.scale) if part else DataFrame()

    def inside(self, what: str) -> dict[str, Any]:
        """What was measured of trained models, by run."""
        path = self.store.root / "inside" / f"{what}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def measure_inside(self, what: str, labels: Iterable[str], measure: Callable[[Path], Any]) -> None:
        """Measure every model of these parts whose weights are there and that was not measured before."""
        found = self.inside(what)
        for record in [record for label in labels for record in self.records(label)]:
            weights = self.store.folder(record.run) / WEIGHTS
            if record.run not in found and weights.exists():
                self.keep_inside(what, found := found | {record.run: measure(weights)})

    def keep_inside(self, what: str, found: Mapping[str, Any]) -> None:
        """Write what was measured, a line for each run."""
        lines = ",\n".join(f"{json.dumps(run)}: {json.dumps(found[run])}" for run in sorted(found))
        write_atomically(self.store.root / "inside" / f"{what}.json", f"{{\n{lines}\n}}\n".encode())


class NoRunsError(ValueError):
    """A figure has nothing to show; the message has the command that makes its runs."""


def no_runs(runs: PaperRuns, experiment: str, what: str = "no runs") -> NoRunsError:
    """The error for runs that are missing, with the command that makes them."""
    return NoRunsError(
        f"{runs.store.root} has {what} of {experiment} at scale {runs.scale}. "
        f"They are made by: recallscope reproduce {experiment} --scale {runs.scale} --store {runs.store.root}"
    )


def source_line(runs: PaperRuns, experiment: str, labels: Sequence[str], designed: Sequence[str] = ()) -> str:
    """Runs, circuits, scale and store behind a figure, and what was cut. NoRunsError if there is nothing."""
    trained = sum(len(runs.records(label)) for label in labels)
    circuits = sum(len(runs.designed(label)) for label in designed)
    if not trained and not circuits:
        raise no_runs(runs, experiment)
    wanted = sum(len(runs.parts[label].cells) for label in labels if label in runs.parts)
    some = f" of {wanted}" if trained < wanted else ""
    counts = f"{trained}{some} runs" + (f", {circuits} circuits" if circuits else "")
    cuts = dict.fromkeys(runs.parts[label].cut for label in labels if label in runs.parts and runs.records(label))
    store = "/".join(runs.store.root.parts[-2:])
    return "; ".join(
        [f"{counts}, scale {runs.scale}, from {store}", *(f"differs from the paper: {cut}" for cut in cuts if cut)]
    )


@dataclass(frozen=True)
class Caption:
    """What is written under a figure: sentences without their full stop, and its runs in small print."""

    finding: str
    how: str  # to read it
    n: str  # what it rests on: numbers of runs and seeds, what the intervals are
    source: str

    def __str__(self) -> str:
        return " ".join(f"{text[:1].upper()}{text[1:]}." for text in (self.finding, self.how, self.n) if text)


@contextmanager
def sheet(width: float, height: float, caption: Caption | str) -> Iterator[Figure]:
    """An empty figure with panels of that size in inches; the caption is written under them when they are done."""
    from recallscope.figures.style import figure_style, new_figure

    with figure_style():
        figure = new_figure(width, height)
        yield figure
        caption = caption if isinstance(caption, Caption) else Caption("", "", "", caption)
        lines = fill(str(caption), int(width * 16.5)), fill(caption.source, int(width * 21))  # of 8 and 6 points
        heights = [0.155 * (lines[0].count("\n") + 1) + 0.05, 0.12 * (lines[1].count("\n") + 1) + 0.04]
        below = sum(heights)
        figure.set_size_inches(width, height + below)
        whole = height + below
        figure.set_layout_engine("constrained", rect=(0, below / whole, 1, height / whole))
        figure.text(0.06 / width, below / whole, lines[0], va="top", fontsize=8, linespacing=1.3)
        figure.text(0.06 / width, heights[1] / whole, lines[1], va="top", fontsize=6, color="#555555")
        figure.set_label(str(caption))


def draw_part(runs: PaperRuns, part: Part | None, ax: Axes, axes: Sequence[str] = D_N, title: str = "") -> Axes:
    """The best of seeds of a part; without runs a panel that says so, and nothing if this scale has no such part."""
    from recallscope.figures.accuracy_panels import draw_grid, draw_missing

    if part is None:
        ax.set_axis_off()
        return ax
    rows = runs.rows(part.label)
    if rows.empty:
        return draw_missing(ax, title=title)
    return draw_grid(planned_grid(part.grid, rows, axes), ax, title=title)


# the a of Rem 4.3 and its name; for the full model half of it, the paper's heuristic
PRINTED_A = {("linear", "ar"): (1.0, "1"), ("linear", "mqar"): (1.25, "5/4"), ("full", "mqar"): (0.625, "5/8")}
NOTE = "dashed: as printed; solid: fitted, its 95\u00a0% band from resampled cells and seed noise"


def curve_of(runs: PaperRuns, label: str, a: float, axes: Sequence[str] = D_N, **options: Any) -> CollapseCurve | None:
    """The collapse of a part's runs with this a, without seeds that failed; None without runs."""
    rows = learned(runs.rows(label))
    if rows.empty:
        return None
    grid = AccuracyGrid.from_runs(rows, axes, reduce=COMPARED)
    return collapse_curve(grid, a, np.random.default_rng(0), noise=runs.noise(rows), **options)


def draw_curve(
    runs: PaperRuns, part: Part | None, curve: CollapseCurve | None, ax: Axes, name_a: str, sizes: Sequence[float]
) -> None:
    """A collapse with colours for the sizes of all panels; without runs as `draw_part` does."""
    from recallscope.figures.accuracy_panels import draw_collapse

    if curve:
        draw_collapse(curve, ax, name_a=name_a, group_range=(min(sizes), max(sizes)))
    else:
        draw_part(runs, part, ax).set_box_aspect(None)
