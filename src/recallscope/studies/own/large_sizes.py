"""Large sizes, our own experiment: do laws without a fitted constant carry over to sizes they were not made for?

The laws of the linear Mamba, of a write gate (mLSTM) and of least squares (MesaNet) were written down and checked with
up to 1024 tokens, 64 dimensions and 32 facts. Three cells beyond, in the transition of the linear law, were chosen by
the laws alone, before any of them was trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from recallscope.analysis.compare import LawPoints, law_on_cells
from recallscope.analysis.rows import cell_words, group_cells
from recallscope.presets import Preset
from recallscope.specs import find_architecture
from recallscope.studies.claims import Finding, own_check, verdict_of
from recallscope.studies.experiment import Part, Rows, Scale, experiment, part
from recallscope.studies.paper_runs import PaperRuns, no_runs, sheet, source_line
from recallscope.theory.law import find_law

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LARGE = Preset(
    "large sizes: laws far from where they were made",
    {"kind": "mqar", "vocab_size": 4096, "num_facts": 64},
    {"kind": "linear_mamba", "embed_dim": 96, "state_dim": 12},
    {"warmup_steps": 200, "flat_steps": 1600, "decay_steps": 6200, "eval_every": 1000},
    seeds=3,
)
KINDS = {"linear_mamba": "linear Mamba", "mlstm": "write gate (mLSTM)", "mesa_net": "least squares (MesaNet)"}
SIZES = ("vocab_size", "num_facts", "embed_dim", "state_dim")
CELLS = ((4096, 64, 96, 12), (2048, 48, 64, 16), (4096, 32, 48, 12))
PRINTED = "unified"  # Rem 4.3, for the linear Mamba
LESS = {"batch_size": 32, "eval_size": 1000}
STEPS = (  # for each cell, within ten minutes of a core for each run
    {"flat_steps": 800, "decay_steps": 3000},
    {"flat_steps": 800, "decay_steps": 3000},
    {"flat_steps": 1200, "decay_steps": 4600},
)
TINY = (128, 8, 16, 6)


def label_of(kind: str) -> str:
    """How a part is named."""
    return f"large sizes, {KINDS[kind]}"


@experiment(
    "large-sizes",
    "our own: laws far from the sizes they were made for",
    presets={"large-sizes": LARGE},
)
def large_sizes(scale: Scale) -> Iterator[Part]:
    """The same cells for every memory; one seed at the small scale."""
    cells, steps = ((TINY,), ({"flat_steps": 100, "decay_steps": 300},)) if scale == "quick" else (CELLS, STEPS)
    for kind in KINDS:
        zipped = dict(zip(SIZES, zip(*cells, strict=True), strict=True))
        if scale == "paper":
            yield part(label_of(kind), LARGE, model={"kind": kind}, axes={"seed": range(LARGE.seeds)}, zipped=zipped)
        else:
            zipped |= {name: tuple(step[name] for step in steps) for name in steps[0]}
            cut = "batch 32, 4000 to 6000 steps, one seed" if scale == "small" else "tiny"
            yield part(
                label_of(kind), LARGE, model={"kind": kind}, train=LESS, axes={"seed": [0]}, zipped=zipped, cut=cut
            )


def law_of(kind: str) -> str | None:
    """The law that speaks about the architecture."""
    return find_architecture(kind).law


def by_cell(rows: Rows) -> Rows:
    """A row per cell, with the mean of its seeds."""
    groups = group_cells(rows, cell_words(rows)).values() if rows else ()
    return [
        {**members[0], "test_accuracy": float(np.mean([row["test_accuracy"] for row in members]))} for members in groups
    ]


@large_sizes.findings
def carried_over(runs: PaperRuns) -> Iterator[Finding]:
    """Measured less predicted, for every memory by its own law, and for the linear Mamba by the printed one."""
    asked = [(kind, law_of(kind)) for kind in KINDS] + [("linear_mamba", PRINTED)]
    for kind, law in asked:
        check = own_check(f"Does {law or 'a law'} hold for {KINDS[kind]} at large sizes?", "large-sizes")
        cells, missing = by_cell(runs.rows(label_of(kind))), runs.missing(label_of(kind))
        if not cells or law is None:
            yield check.untested("no runs yet" if law else "no law speaks about it", missing)
            continue
        measured, predicted = _measured(cells), law_on_cells(find_law(law), cells)
        flags = ", ".join(record.flag for record in runs.records(label_of(kind)) if record.flag) or "none"
        each = "; ".join(
            f"{p:.3f} (law {q:.3f}) at ({', '.join(str(cell[name]) for name in SIZES)})"
            for cell, p, q in zip(cells, measured, predicted, strict=True)
        )
        off = np.abs(measured - predicted)
        yield check.answer(
            f"off by {off.mean():.3f}, at most {off.max():.3f}; {each}",
            verdict_of(float(off.max()), 0.02, 0.05),
            f"{len(cells)} cells (V, N_f, D, N), {len(runs.rows(label_of(kind)))} runs; flags: {flags}",
            missing,
        )


def _measured(cells: Rows) -> np.ndarray:
    return np.array([cell["test_accuracy"] for cell in cells])


@large_sizes.figure("large-sizes", "ours: laws at sizes they were not made for")
def large_figure(runs: PaperRuns) -> Figure:
    """Predicted against measured accuracy, a dot per cell: every memory by its law, and the printed law."""
    from recallscope.figures.accuracy_panels import draw_law_points
    from recallscope.figures.style import BLUE, GREEN, GUESS, ORANGE, PAGE

    text = source_line(runs, large_sizes.name, [label_of(kind) for kind in KINDS])
    laws = {name: (kind, law) for kind, name in KINDS.items() if (law := law_of(kind))}
    laws["linear Mamba, printed law"] = ("linear_mamba", PRINTED)
    cells = {name: by_cell(runs.rows(label_of(kind))) for name, (kind, _) in laws.items()}
    cells = {name: rows for name, rows in cells.items() if rows}
    if not cells:
        raise no_runs(runs, large_sizes.name, "no runs with a law")
    predicted = {name: law_on_cells(find_law(laws[name][1]), rows) for name, rows in cells.items()}
    measured = {name: _measured(rows) for name, rows in cells.items()}
    ours = [np.abs(measured[name] - predicted[name]) for name in cells if laws[name][1] != PRINTED]
    mean = float(np.mean(np.concatenate(ours))) if ours else float("nan")
    markers = dict(zip((*KINDS.values(), "linear Mamba, printed law"), "os^D", strict=True))
    colours = dict(zip(markers, (BLUE, ORANGE, GREEN, GUESS), strict=True))
    with sheet(0.6 * PAGE, 3.6, text) as figure:
        points = LawPoints("", predicted, measured, mean)
        title = f"sizes beyond those the laws were made with\nmean error of our laws {mean:.3f}"
        ax = draw_law_points(points, figure.subplots(), title=title, colours=colours, markers=markers)
        ax.legend()
    return figure
