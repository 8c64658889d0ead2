"""Large sizes, our own experiment: do laws without a fitted constant carry over to sizes they were not made for?

The laws of the linear Mamba, of a write gate (mLSTM) and of least squares (MesaNet) were written down and checked with
up to 1024 tokens, 64 dimensions and 32 facts. Three cells beyond, in the transition of the linear law, were chosen by
the laws alone, before any of them was trained.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.table import accuracies, cells_of, rows_of
from recallscope.presets import Preset
from recallscope.specs import find_architecture
from recallscope.studies.claims import Finding, by_distance, own_check
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.law_table import mae
from recallscope.studies.markdown import table
from recallscope.studies.paper_runs import Caption, PaperRuns, no_runs, sheet, source_line
from recallscope.theory.law import DIMENSIONS, find_law

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
CELLS = ((4096, 64, 96, 12), (2048, 48, 64, 16), (4096, 32, 48, 12))
PAPERS = {"unified": "Rem 4.3 as printed", "unified-mv": "Rem 4.3 with m_V"}  # for the linear Mamba
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
        zipped = dict(zip(DIMENSIONS, zip(*cells, strict=True), strict=True))
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


@large_sizes.findings
def carried_over(runs: PaperRuns) -> Iterator[Finding]:
    """Measured minus predicted, for every memory by its own law; for the linear Mamba by the paper's beside it."""
    for kind in KINDS:
        law = law_of(kind)
        check = own_check(f"Does {law or 'a law'} hold for {KINDS[kind]} at large sizes?", "large-sizes")
        cells, missing = cells_of(runs.rows(label_of(kind))), runs.missing(label_of(kind))
        if cells.empty or law is None:
            yield check.untested("no runs yet" if law else "no law applies to it", missing)
            continue
        measured, predicted = accuracies(cells), law_on_cells(find_law(law), cells)
        flags = ", ".join(record.flag for record in runs.records(label_of(kind)) if record.flag) or "none"
        each = "; ".join(
            f"{p:.3f} (law {q:.3f}) at ({', '.join(map(str, cell))})"
            for cell, p, q in zip(cells[[*DIMENSIONS]].itertuples(index=False), measured, predicted, strict=True)
        )
        others = [
            f"{text} is off by {np.abs(measured - law_on_cells(find_law(name), cells)).mean():.3f}"
            for name, text in (PAPERS.items() if kind == "linear_mamba" else ())
        ]
        off = measured - predicted
        yield check.answer(
            f"off by {mae(off)}; {each}" + (f". On the same cells {', '.join(others)}" if others else ""),
            by_distance("largest error of a cell", float(np.abs(off).max()), 0.02, 0.05),
            f"{len(cells)} cells (V, N_f, D, N), {len(runs.rows(label_of(kind)))} runs, one seed; warnings: {flags}"
            + (". The grid of Fig. 11 has twelve more cells, where the errors are larger" if others else ""),
            missing,
        )


@large_sizes.figure("large-sizes", "ours: laws at sizes they were not made for")
def large_figure(runs: PaperRuns) -> Figure:
    """Measured minus predicted accuracy of every cell, by our laws and by the paper's."""
    from recallscope.figures.accuracy_panels import draw_residuals
    from recallscope.figures.style import BLUE, GREEN, GUESS, ORANGE, PAGE

    laws = {name: (kind, law) for kind, name in KINDS.items() if (law := law_of(kind))}
    laws |= {f"linear Mamba, {text}": ("linear_mamba", law) for law, text in PAPERS.items()}
    cells = {name: rows for name, (kind, _) in laws.items() if len(rows := cells_of(runs.rows(label_of(kind))))}
    if not cells:
        raise no_runs(runs, large_sizes.name, "no runs with a law")
    predicted = {name: law_on_cells(find_law(laws[name][1]), rows) for name, rows in cells.items()}
    off = {name: accuracies(rows) - predicted[name] for name, rows in cells.items()}
    ours = np.concatenate([off[name] for name in cells if laws[name][1] not in PAPERS])
    count, asked = len(next(iter(cells.values()))), len(CELLS)
    caption = Caption(
        f"At {count} settings beyond the sizes that the laws were made with, our laws are off by {mae(ours)}",
        "each symbol is one trained model; on the line at 0 a law is right",
        f"{len(ours)} runs, one seed each; the {asked} settings were chosen by the laws before any was trained; the "
        "interval is over settings",
        source_line(runs, large_sizes.name, [label_of(kind) for kind in KINDS]),
    )
    with sheet(0.75 * PAGE, 3.4, caption) as figure:
        names = (*KINDS.values(), *(f"linear Mamba, {text}" for text in PAPERS.values()))
        looks = dict(zip(names, zip((BLUE, ORANGE, GREEN, GUESS, GUESS), "os^Dv", strict=True), strict=True))
        draw_residuals(predicted, off, figure.subplots(), looks=looks).legend(ncols=2)
    return figure


def large_table(runs: PaperRuns, page: str = "") -> list[str]:
    """Every cell of every memory: trained, by its law, and for the linear Mamba by the paper's."""
    lines = []
    for kind in KINDS:
        cells, law = cells_of(runs.rows(label_of(kind))), law_of(kind)
        if cells.empty:
            continue
        own = law_on_cells(find_law(law), cells) if law else np.full(len(cells), np.nan)
        papers = np.array([law_on_cells(find_law(name), cells) for name in PAPERS])
        for row, p, others in zip(rows_of(cells), own, papers.T, strict=True):
            sizes = ", ".join(str(row[name]) for name in DIMENSIONS)
            last = [f"{q:.3f}" if kind == "linear_mamba" else "" for q in others]
            lines.append([sizes, KINDS[kind], f"{row['test_accuracy']:.4f}", f"{p:.3f}", *last])
    return table(["V, N_f, D, N", "memory", "trained", "its law", *PAPERS.values()], lines) if lines else []
