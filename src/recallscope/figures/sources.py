"""What a figure is made of: its runs, the line under it that names them, or an error that says how they are made."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill

from matplotlib.figure import Figure

from recallscope.analysis.paper_runs import PaperRuns
from recallscope.specs import TaskSpec
from recallscope.sweeps.paper_grids import EXAMPLE, REGIMES, Part, part_label


class NoRunsError(ValueError):
    """A figure has nothing to show; the message has the command that makes its runs."""


def no_runs(runs: PaperRuns, experiment: str, what: str = "no runs") -> NoRunsError:
    """What is missing, and how it is made."""
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
    wanted = sum(len(runs.parts[label].grid.cells()) for label in labels if label in runs.parts)
    some = f" of {wanted}" if trained < wanted else ""
    counts = f"{trained}{some} runs" + (f", {circuits} circuits" if circuits else "")
    cuts = dict.fromkeys(runs.parts[label].cut for label in labels if label in runs.parts and runs.records(label))
    store = "/".join(runs.store.root.parts[-2:])
    notes = [f"{counts}, scale {runs.scale}, from {store}", *(f"cut: {cut}" for cut in cuts if cut)]
    return "; ".join(notes)


def write_source(figure: Figure, text: str) -> None:
    """The small line under a figure, broken where it would be wider than the figure."""
    width = int(figure.get_figwidth() * 18)  # letters of 7 points to an inch
    figure.supxlabel(fill(text, width), fontsize=7, color="#555555")


def regime_part(runs: PaperRuns, model: str, task: str, regime: str) -> Part | None:
    """The part of a D-N grid, if this scale has it for that very task; the authors' example stands in for (iii)."""
    names = [part_label(model, task, regime)]
    if (model, task, regime) == ("linear", "mqar", "iii"):
        names.append(EXAMPLE)
    for name in names:
        part = runs.parts.get(name)
        if part and all(part.grid.cells()[0].spec.task.model_dump()[k] == v for k, v in REGIMES[regime].items()):
            return part
    return None


def why_empty(runs: PaperRuns, part: Part | None) -> str:
    """What an empty panel says: its runs are still to come, or this scale has none."""
    return "no runs yet" if part else f"not at scale {runs.scale}"


def regimes_here(runs: PaperRuns, wanted: Sequence[str]) -> list[str]:
    """The regimes wanted that this scale trains linear models on; if none of them, those it does."""
    has = [regime for regime in REGIMES if regime_part(runs, "linear", "mqar", regime)]
    return [regime for regime in wanted if regime in has] or has


def regime_words(regime: str) -> str:
    """Such as (i) V = 1024, L = 64, N_f = 16; the length is that of MQAR."""
    task = TaskSpec(kind="mqar", **REGIMES[regime])
    return f"({regime}) $V={task.vocab_size}$, $L={task.length}$, $N_f={task.num_facts}$"
