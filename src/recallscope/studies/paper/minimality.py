"""What a recall circuit cannot do without: the ablations of Tab. 8.

Paper: App. I.1 (`app:mqar_ablation_impl_details`), Tab. 8 (`fig:mqar_ablation`), Fig. 17
(`app-fig:circuit-minimality`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, pstdev
from typing import TYPE_CHECKING, Any

import numpy as np
from pandas import DataFrame

from recallscope.analysis.table import rows_of
from recallscope.presets import Fields, Preset
from recallscope.studies.claims import Check, Finding, by_distance
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.markdown import table
from recallscope.studies.paper_runs import PaperRuns, sheet, source_line

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Ablation:
    """One ablation: what it is, the accuracy the paper prints, and the parts that its model has."""

    name: str
    title: str
    published: float
    parts: Fields


_FULL: Fields = {"transition": "selective", "gate": True, "activation": "silu", "conv_width": 4}
_NONE: Fields = {"transition": "identity", "gate": False, "activation": "none"}
ABLATIONS = (
    Ablation("Base", "one layer, no norm, conv width 4", 1.0, _FULL),
    Ablation("A", "Base with A-bar = I, no discretisation", 1.0, _FULL | {"transition": "identity"}),
    Ablation("B", "A without the gate", 1.0, _FULL | {"transition": "identity", "gate": False}),
    Ablation("C", "B without SiLU after the convolution", 1.0, _NONE | {"conv_width": 4}),
    Ablation("D", "C with conv width 2", 1.0, _NONE | {"conv_width": 2}),
    Ablation("E", "C with conv width 1: no convolution", 0.06, _NONE | {"conv_width": 1}),
)
ABLATION_PRESETS = {
    "minimality" if ablation.name == "Base" else f"minimality-{ablation.name.lower()}": Preset(
        f"ablation {ablation.name} (Tab. 8)",
        {"kind": "mqar", "vocab_size": 128, "num_facts": 16},
        {"kind": "mamba", "embed_dim": 64, "state_dim": 16, "norm": "none", "skip": False, "delta_rank": "full"}
        | ablation.parts,
        {
            "flat_steps": 1400, "decay_steps": 2500, "weight_decay": 0.1, "clip_norm": 1.5, "stop_accuracy": 0.999,
            "eval_every": 250,
        },
        seeds=5,
    )
    for ablation in ABLATIONS
}  # fmt: skip
ABLATION_LABEL = "ablations"


@experiment("minimality", "ablations Base, A to E", claims=("tab-8", "fig-17"), presets=ABLATION_PRESETS)
def minimality(scale: Scale) -> Iterator[Part]:
    """All ablations, the same at the small scale as in the paper; the last three at the quick scale."""
    base = ABLATION_PRESETS["minimality"]
    walk = {name: [ablation.parts[name] for ablation in ABLATIONS] for name in _FULL}
    if scale == "quick":
        last = {name: values[-3:] for name, values in walk.items()}
        less = {"flat_steps": 400, "decay_steps": 500, "batch_size": 64, "eval_size": 1000}
        yield part(
            ABLATION_LABEL, base, axes={"seed": [0]}, zipped=last, train=less, cut="ablations C, D, E; 1000 steps"
        )
    else:
        yield part(ABLATION_LABEL, base, axes={"seed": range(base.seeds)}, zipped=walk)


@dataclass(frozen=True)
class AblationResult:
    """An ablation with the accuracy of every seed, in their order."""

    ablation: Ablation
    accuracies: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return mean(self.accuracies)

    @property
    def spread(self) -> float:
        """Standard deviation over the seeds, as printed: divided by their number."""
        return pstdev(self.accuracies)


def ablation_of(row: Mapping[str, Any]) -> Ablation:
    """Which ablation a run is, from the parts its model has."""
    for ablation in ABLATIONS:
        if all(row[name] == value for name, value in ablation.parts.items()):
            return ablation
    parts = ", ".join(f"{name}={row[name]}" for name in _FULL)
    raise ValueError(f"{parts} is not one of the ablations, which end with conv_width 4, 2 and 1 (Tab. 8).")


def ablation_results(table: DataFrame) -> list[AblationResult]:
    """The ablations that have runs, from Base down."""
    rows = sorted(rows_of(table), key=lambda row: int(row["seed"]))
    seen = ((one, tuple(row["test_accuracy"] for row in rows if ablation_of(row) == one)) for one in ABLATIONS)
    results = [AblationResult(*found) for found in seen]
    return [result for result in results if result.accuracies]


@minimality.findings
def step_by_step(runs: PaperRuns) -> Iterator[Finding]:
    """The whole table."""
    paper = ", ".join(f"{ablation.name} {ablation.published:.2f}" for ablation in ABLATIONS)
    check = Check("tab-8", "What can be taken away from Mamba?", paper, "fig-17")
    rows = runs.rows(ABLATION_LABEL)
    results = ablation_results(rows)
    if not results:
        yield check.untested("no runs")
        return
    worst = max(abs(result.mean - result.ablation.published) for result in results)
    yield check.answer(
        ", ".join(f"{result.ablation.name} {result.mean:.4f} (SD {result.spread:.4f})" for result in results)
        + f"; 1/N_f = {1 / rows['num_facts'].iloc[0]:.4f}",
        by_distance("largest difference from the printed table", worst, 0.01, 0.03),
        f"mean and standard deviation of {min(len(result.accuracies) for result in results)} seeds each; "
        + "; ".join(f"{result.ablation.name}: {result.ablation.title}" for result in results),
        runs.missing(ABLATION_LABEL),
        (
            ("ablation", "what it is", "paper", "measured, all seeds"),
            *tuple(
                (
                    result.ablation.name,
                    result.ablation.title,
                    f"{result.ablation.published:.2f}",
                    ", ".join(f"{p:.4f}" for p in result.accuracies),
                )
                for result in results
            ),
        ),
    )


@minimality.figure("fig-17", "the ablations")
def ablations_figure(runs: PaperRuns) -> Figure:
    """The ablations as bars.   Paper: Fig. 17 (`app-fig:circuit-minimality`), Tab. 8 (`fig:mqar_ablation`)."""
    from recallscope.figures.style import COLUMN

    text = source_line(runs, minimality.name, (ABLATION_LABEL,))
    rows = runs.rows(ABLATION_LABEL)
    results = ablation_results(rows)
    names = "; ".join(f"{result.ablation.name}: {result.ablation.title}" for result in results)
    with sheet(1.3 * COLUMN, 2.9, f"{names}. Bars: mean, dots: seeds. {text}") as figure:
        ax = figure.subplots()
        _draw_ablations(results, rows["num_facts"].iloc[0], ax)
        ax.set_title("What can be taken away")
    return figure


def _draw_ablations(results: Sequence[AblationResult], num_facts: int, ax: Axes) -> None:
    """Mean accuracy of each ablation as a bar, every seed as a dot, and guessing among the facts as a line."""
    from recallscope.figures.style import BLACK, BLUE, GUESS

    ax.bar(range(len(results)), [result.mean for result in results], color=BLUE, width=0.6)
    for place, result in enumerate(results):
        count = len(result.accuracies)
        beside = np.linspace(-0.2, 0.2, count) if count > 1 else np.zeros(count)
        ax.plot(place + beside, result.accuracies, ".", color=BLACK)
    ax.axhline(1 / num_facts, color=GUESS, ls="--", lw=0.8)
    ax.text(1.01, 1 / num_facts, "$1/N_f$", color="#555555", va="center", transform=ax.get_yaxis_transform())
    ax.set_xticks(range(len(results)), [result.ablation.name for result in results])
    ax.set(ylabel="accuracy", ylim=(0, 1.05))


def ablations_table(runs: PaperRuns, page: str = "") -> list[str]:
    """Tab. 8, seed by seed."""
    rows, records = [], runs.records(ABLATION_LABEL)
    for result in ablation_results(runs.rows(ABLATION_LABEL)):
        members = [record for record in records if ablation_of(record.fields) == result.ablation]
        steps, seconds = (np.mean([getattr(record, name) for record in members]) for name in ("steps", "seconds"))
        seeds = ", ".join(f"{p:.4f}" for p in result.accuracies)
        one, numbers = result.ablation, (f"{result.mean:.4f}", f"{result.spread:.4f}", seeds)
        rows.append([one.name, one.title, f"{one.published:.2f}", *numbers, f"{steps:.0f}", f"{seconds:.0f}"])
    return table(["ablation", "", "published", "mean", "sd", "seeds", "steps", "seconds a run"], rows) if rows else []
