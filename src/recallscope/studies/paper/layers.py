"""Depth: is recall a function of Lambda N alone?

Paper: Thm 4.6 (`thm:multi-layer-recall-scaling-laws`), Sec. 5.3 (`subsec:multi-layer-experiments`), Fig. 10
(`app-fig:multi-layer-scaling-laws`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from pandas import DataFrame

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.collapse import fit_collapse
from recallscope.analysis.seed_noise import interval, mean_gap
from recallscope.analysis.table import COMPARED, cell_fields, seeds_by
from recallscope.presets import Preset
from recallscope.studies.claims import Check, Finding, by_distance
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.paper_runs import (
    NOTE,
    PRINTED_A,
    Caption,
    PaperRuns,
    curve_of,
    draw_curve,
    draw_part,
    sheet,
    source_line,
    span,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MODEL = {"kind": "linear_mamba", "embed_dim": 64, "state_dim": 6, "num_layers": 2, "residual": True}
MQAR_PRESET = Preset(
    "N-Lambda grids with residuals (Fig. 5), MQAR",
    {"kind": "mqar", "vocab_size": 512, "num_facts": 80},
    _MODEL,
    {"flat_steps": 1400, "decay_steps": 2500, "clip_norm": 2.5, "eval_every": 1000},
    seeds=3,
)
AR_PRESET = Preset(
    "N-Lambda grids with residuals (Fig. 10), AR",
    {"kind": "ar", "vocab_size": 512, "num_facts": 80},
    _MODEL,
    {
        "batch_size": 750, "warmup_steps": 250, "flat_steps": 2250, "decay_steps": 7500, "clip_norm": 2.5,
        "eval_every": 1000,
    },
    seeds=3,
)  # fmt: skip
MQAR, AR = "layers MQAR", "layers AR"
AXES = ("state_dim", "num_layers")
ANCHOR = ((12, 1), (6, 2), (4, 3), (3, 4))  # (N, Lambda) where the paper reads about 0.38
PUBLISHED = 0.38


@experiment(
    "layers",
    "N-Lambda grids: recall depends on Lambda N",
    claims=("sec-5.3", "fig-5", "fig-10"),
    presets={"layers": MQAR_PRESET, "layers-ar": AR_PRESET},
)
def layers(scale: Scale) -> Iterator[Part]:
    """MQAR and AR; at the quick scale MQAR only."""
    if scale == "quick":
        yield part(
            MQAR, MQAR_PRESET, task={"vocab_size": 128, "num_facts": 8}, model={"embed_dim": 16},
            train={"batch_size": 32, "flat_steps": 400, "decay_steps": 500, "eval_size": 1000, "eval_every": 500},
            axes={"state_dim": [2, 4], "num_layers": [1, 2], "seed": [0]}, cut="tiny task",
        )  # fmt: skip
    if scale == "small":
        yield part(
            MQAR, MQAR_PRESET, train={"batch_size": 32, "eval_size": 1000}, axes={"seed": [0]},
            zipped={"state_dim": [3, 4, 6, 8, 12, 3, 4, 6, 8, 12, 3, 4, 6, 8, 3, 4],
                    "num_layers": [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4]},
            cut="batch 32, test sets of 1000",
        )  # fmt: skip
        yield part(
            AR, AR_PRESET, task={"num_facts": 20}, model={"embed_dim": 32},
            train={"batch_size": 256, "warmup_steps": 100, "flat_steps": 1400, "decay_steps": 2500},
            axes={"seed": [0]},
            zipped={"state_dim": [2, 3, 4, 6, 8, 2, 3, 4, 6, 8, 2, 3, 4, 6, 2, 3],
                    "num_layers": [1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4]},
            cut="N_f = 20, D = 32, batch 256, 4000 steps",
        )  # fmt: skip
    if scale == "paper":
        axes = {"state_dim": range(2, 17), "num_layers": range(1, 6), "seed": range(3)}
        yield part(MQAR, MQAR_PRESET, axes=axes)
        yield part(AR, AR_PRESET, axes=axes)


@layers.findings
def named_cells(runs: PaperRuns) -> Iterator[Finding]:
    """The four cells that the text names."""
    question = f"Equal Lambda N = 12: (N, Lambda) = {', '.join(map(str, ANCHOR))}"
    check = Check("fig-10", question, f"about {PUBLISHED} at all four", "fig-10")
    rows = runs.rows(MQAR)
    cells = seeds_by(rows, *AXES)
    done = {cell: float(cells[cell].mean()) for cell in ANCHOR if cell in cells}
    if len(done) < 2:
        yield check.untested(f"{len(done)} of the four settings done", runs.missing(MQAR))
        return
    values = np.array(list(done.values()))
    text = ", ".join(f"{accuracy:.3f} at {cell}" for cell, accuracy in done.items())
    yield check.answer(
        f"{text}; spread {np.ptp(values):.3f}",
        by_distance(
            "spread, and distance of the mean from the published value",
            max(np.ptp(values), abs(values.mean() - PUBLISHED)),
            0.03,
            0.08,
        ),
        f"{len(done)} of 4 settings, mean of seeds, V = {rows['vocab_size'].iloc[0]}, N_f = "
        f"{rows['num_facts'].iloc[0]}; {runs.parts[MQAR].cut or 'as published'}",
    )


def equal_products(cells: Iterable[tuple[int, int]]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Pairs (N, Lambda) with equal Lambda N, the deeper one first."""
    return [(p, q) for p in cells for q in cells if p[1] > q[1] and p[0] * p[1] == q[0] * q[1]]


@layers.findings
def product_alone(runs: PaperRuns) -> Iterator[Finding]:
    """Cells with equal Lambda N, and the collapse with N_eff = Lambda N."""
    paper = "yes: the curves of all depths coincide"
    check = Check("sec-5.3", "Does accuracy depend on Lambda N alone?", paper, "fig-10")
    missing = runs.missing(MQAR, AR)
    said, evidence, sizes = [], [], []
    for label in (MQAR, AR):
        rows = runs.rows(label)
        cells = seeds_by(rows, *AXES)
        if not (pairs := equal_products(cells)):
            continue
        noise = runs.noise(rows)
        gap = mean_gap(pairs, cells, noise)
        fitted = ""
        if len(cells) >= 4:
            grid = AccuracyGrid.from_runs(rows, cell_fields(rows), reduce=COMPARED)
            fit = fit_collapse(grid, np.random.default_rng(0), noise=noise)
            fitted = f"; one curve with a = {fit.a:.2f} {interval(*fit.a_interval)}, spread {fit.mean_error:.3f}"
        here = np.abs(gap.gaps)
        sizes.append(here.mean())
        said.append(
            f"{label}: settings of equal Lambda N differ by {here.mean():.3f} on average, {here.max():.3f} at most; "
            f"deeper minus shallower {gap.mean:+.3f} {interval(*gap.interval, 3)}{fitted}"
        )
        cut = runs.parts[label].cut or "as published"
        evidence.append(f"{label}: {len(rows)} runs, {len(pairs)} pairs, {cut}; 95% intervals: {noise}")
    if not said:
        yield check.untested("no two settings with equal Lambda N done", missing)
        return
    yield check.answer(
        ". ".join(said),
        by_distance("mean difference at equal Lambda N, for both tasks", max(sizes), 0.03, 0.08),
        ". ".join(evidence),
        missing,
    )


@layers.law_cells
def deep_cells(runs: PaperRuns) -> dict[str, DataFrame]:
    """Runs with more than one layer."""
    return {label: rows[rows["num_layers"] > 1] for label in (MQAR, AR) if len(rows := runs.rows(label))}


@layers.figure("fig-5", "layers: N-Lambda grid and its collapse, MQAR", shown={MQAR: "mqar"})
@layers.figure("fig-10", "layers: AR and MQAR", shown={AR: "ar", MQAR: "mqar"})
def layers_figure(runs: PaperRuns, shown: dict[str, str]) -> Figure:
    """N-Lambda grids and their collapse, a row for every part.

    Paper: Fig. 5 (`fig:multi-layer-scaling-laws`), Fig. 10 (`app-fig:multi-layer-scaling-laws`).
    """
    from recallscope.figures.accuracy_panels import draw_bar, draw_size_key
    from recallscope.figures.style import PAGE

    shown = {label: task for label, task in shown.items() if label in runs.parts}
    text = source_line(runs, layers.name, list(shown))
    curves = {
        label: curve_of(runs, label, PRINTED_A["linear", task][0], axes=AXES, group_field="num_layers")
        for label, task in shown.items()
    }
    depths: Sequence[float] = [float(depth) for curve in curves.values() if curve for depth in curve.group]
    cells = {label: seeds_by(runs.rows(label), *AXES) for label in shown}
    gaps = [
        float(np.mean([abs(np.mean(here[p]) - np.mean(here[q])) for p, q in pairs]))
        for here in cells.values()
        if (pairs := equal_products(here))
    ]
    caption = Caption(
        f"Settings with equal $\\Lambda N$ differ in accuracy by {span(gaps, '.3f')} on average" if gaps else "",
        f"left: accuracy; right: the same against $1/\\sigma$, N counted over all layers, with 95% intervals; {NOTE}",
        "white: not part of the plan",
        text,
    )
    with sheet(1.1 * PAGE, 2.5 * len(shown) + 0.4, caption) as figure:
        axes = figure.subplots(len(shown), 2, squeeze=False)
        for (label, task), (left, right) in zip(shown.items(), axes, strict=True):
            found = runs.parts.get(label)
            draw_part(runs, found, left, AXES, f"{task.upper()}, linear").set_box_aspect(None)
            name_a = PRINTED_A["linear", task][1]
            draw_curve(runs, found, curves[label], right, name_a, depths)
            right.set_title(r"against $1/\sigma$")
        draw_bar(figure, axes[:, 0])
        draw_size_key(figure, axes[:, 1], depths, r"$\Lambda$")
    return figure
