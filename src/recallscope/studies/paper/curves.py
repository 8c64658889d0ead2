"""Collapse onto one curve: a and b with intervals, the spread around the curve, and whether full Mamba halves a.

Paper: Rem 4.3 (`rem:practical-scaling-law`), Fig. 4 (`fig:scaling-laws-1d-dims`), Fig. 9
(`app-fig:scaling-curves-regimes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
from pandas import DataFrame

from recallscope.analysis.collapse import Fit
from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.seed_noise import interval
from recallscope.analysis.table import accuracies, cells_of, learned
from recallscope.studies.claims import Check, Finding, Verdict, verdict_of, within
from recallscope.studies.dn_parts import (
    AXES,
    BOOTSTRAP,
    EXAMPLE,
    FULL_EXAMPLE,
    FULL_GRIDS,
    LINEAR_GRIDS,
    REGIMES,
    fit_part,
    full_and_linear,
    full_parts,
    linear_parts,
    mean_grid,
    regime_name,
    regime_part,
    regimes_here,
)
from recallscope.studies.experiment import Part, Scale, experiment
from recallscope.studies.full_as_linear import coefficient_ratio, effective_dimensions, scaled_errors
from recallscope.studies.paper_runs import (
    NOTE,
    PRINTED_A,
    PaperRuns,
    curve_of,
    draw_curve,
    draw_part,
    sheet,
    source_line,
)
from recallscope.theory.law import find_law

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@experiment(
    "curves",
    "the same runs against 1/sigma: do they fall on one curve, and with which a and b?",
    claims=("fig-4", "fig-8", "fig-9"),
)
def curves(scale: Scale) -> Iterator[Part]:
    """The trained runs of the D-N grids."""
    yield from linear_parts(scale)
    yield from full_parts(scale)


# Findings


@curves.findings
def one_curve(runs: PaperRuns) -> Iterator[Finding]:
    """a, b and spread of every linear grid."""
    by_task = sorted(LINEAR_GRIDS, key=lambda label: LINEAR_GRIDS[label][0])
    for label in (*by_task, EXAMPLE):
        if label in runs.parts:
            a, _ = PRINTED_A["linear", LINEAR_GRIDS[label][0] if label in LINEAR_GRIDS else "mqar"]
            yield from _one_curve(label, runs, a)


def _one_curve(label: str, runs: PaperRuns, a: float) -> Iterator[Finding]:
    question = f"One curve Phi(x - b), {label}: a, b and the spread around it"
    text = f"a = {a:g}, b = sqrt(2 log V)"
    rows, missing = runs.rows(label), runs.missing(label)
    fit = fit_part(rows, runs.noise(rows))
    if fit is None:
        yield Check("fig-9", question, text, "fig-9").untested("too few cells done", missing)
        return
    a_holds, b_holds = within(a, fit.a_interval), within(fit.b_printed, fit.b_interval)
    near = abs(fit.a - a) < 0.3 * a
    verdict: Verdict = (
        "holds" if a_holds and b_holds else "holds approximately" if (a_holds or near) else "does not hold"
    )
    yield Check("fig-9", question, f"{text} = {fit.b_printed:.2f}", "fig-9").answer(
        f"{_fitted(fit)} (m_V = {fit.b_typical:.2f}); spread: {fit.mean_error:.3f} on average, {fit.max_error:.3f} "
        f"at most",
        verdict,
        f"{fit.runs} runs, {fit.cells} cells, mean of seeds; 95 % intervals from {BOOTSTRAP} resamplings of cells, "
        f"{fit.noise}; spread is |measured - fitted curve|",
        missing,
    )
    at_all = f"Do the cells fall on one curve at all? {label}"
    yield Check("rem-4.3", at_all, "yes, of the form Phi(x - b)", "fig-9").answer(
        f"spread around the best curve {fit.mean_error:.3f} on average, {fit.max_error:.3f} at most",
        verdict_of(fit.mean_error, 0.015, 0.05),
        f"{fit.cells} cells, mean of seeds, a and b fitted",
        missing,
    )


def _fitted(fit: Fit, name: str = "a") -> str:
    return f"{name} = {fit.a:.2f} {interval(*fit.a_interval)}, b = {fit.b:.2f} {interval(*fit.b_interval)}"


@curves.findings
def half_of_a(runs: PaperRuns) -> Iterator[Finding]:
    """The a of the full model beside the linear one's, regime by regime."""
    for both in full_and_linear(runs):
        question = f"Is a of the full model half of the linear one's, MQAR ({both.regime})?"
        check = Check("fig-4", question, "a_full = a_linear / 2 = 5/8 (by eye)", "fig-4")
        noises = runs.noise(both.full), runs.noise(both.linear)
        ours, beside = (fit_part(rows, noise) for rows, noise in zip((both.full, both.linear), noises, strict=True))
        try:
            generator = np.random.default_rng(0)
            grids = mean_grid(both.full), mean_grid(both.linear)
            ratio = coefficient_ratio(*grids, generator, bootstrap=BOOTSTRAP, noises=noises)
        except ValueError as error:
            yield check.untested(str(error), both.missing)
            continue
        apart, together = (within(0.5, ends) and ends[1] < 1 for ends in (ratio.interval, ratio.shared_b_interval))
        half, whole = ("contains" if within(value, ratio.interval) else "excludes" for value in (0.5, 1))
        fits = "; ".join(_fitted(fit, name) for fit, name in ((ours, "a_full"), (beside, "a_linear")) if fit)
        spread = f"full spread {ours.mean_error:.3f}; " if ours else ""
        yield check.answer(
            f"{fits}; ratio {ratio.value:.2f} {interval(*ratio.interval)}: {half} 1/2, {whole} 1. With one b for "
            f"both: ratio {ratio.shared_b:.2f} {interval(*ratio.shared_b_interval)}",
            "holds" if apart and together else "holds approximately" if together else "does not hold",
            f"{both.description}, mean of seeds; the ratios are on the {ratio.cells} cells that both have; "
            f"{spread}95 % intervals by resampling cells, the same for both; full: {noises[0]}; linear: {noises[1]}. "
            f"Holds: 1/2 inside and 1 outside both intervals of the ratio, approximately: of the one with one b",
            both.missing,
        )


@curves.findings
def which_linear(runs: PaperRuns) -> Iterator[Finding]:
    """The full model as a linear one of other dimensions: chosen on half of one regime, checked on all the rest."""
    paper = "the same D and N, with half the noise coefficient a"
    check = Check("fig-4", "Which linear model is a full Mamba?", paper, "fig-4")
    missing = runs.missing(*FULL_GRIDS.values())
    grids = {both.regime: cells_of(both.full) for both in full_and_linear(runs)}
    grids = {regime: cells for regime, cells in grids.items() if len(cells)}
    cells = grids.pop("iii", cells_of(DataFrame(), AXES))
    try:
        found = effective_dimensions(cells)
    except ValueError as error:
        yield check.untested(str(error), missing)
        return
    printed, typical = (
        float(np.nanmean(np.abs(accuracies(cells) - law_on_cells(find_law(name), cells))))
        for name in ("full-unified", "full-unified-mv")
    )
    best, *others = found.rules
    rest = "; ".join(f"{rule.rule} {rule.error_chosen:.3f} and {rule.error_checked:.3f}" for rule in others)
    elsewhere = ""
    for regime, new in grids.items():
        gaps = np.abs(scaled_errors(best.rule, found.factor, new))
        halved = np.abs(law_on_cells(find_law("full-unified-mv"), new) - accuracies(new))
        elsewhere += (
            f"; {'not confirmed' if gaps.mean() > 0.02 else 'confirmed'} by regime ({regime}), where it is off by "
            f"{gaps.mean():.3f} on average ({gaps.max():.3f} at most; a/2 with m_V: {halved.mean():.3f}) over "
            f"{len(gaps)} cells"
        )
    yield check.answer(
        f"the linear model with {best.rule}, c = {found.factor:.2f}: off by {best.error_chosen:.4f} on the half of "
        f"the cells it was chosen on, {best.error_checked:.4f} on the other half{elsewhere}. Other rules: {rest}. "
        f"The printed law with a/2 is off by {printed:.3f}, with m_V by {typical:.3f}; the linear law itself by "
        f"{found.unscaled[0]:.3f} and {found.unscaled[1]:.3f}",
        verdict_of(printed, 0.02, 0.06),
        f"{found.cells} cells of regime (iii), mean of seeds ({runs.noise(runs.rows(FULL_EXAMPLE))}), halves as on a "
        f"chess board; runs that stayed at chance are left out; trained-sharing; the verdict is on the printed law "
        "with a/2",
        missing,
    )


# Figures


@curves.figure("fig-4", "accuracy against 1/sigma", wanted=("i",))
@curves.figure("fig-8", "accuracy against 1/sigma, with the grids", wanted=("i",), grids=True)
@curves.figure("fig-9", "accuracy against 1/sigma, three regimes", wanted=tuple(REGIMES))
def curves_figure(runs: PaperRuns, wanted: Sequence[str], *, grids: bool = False) -> Figure:
    """Accuracy against 1/sigma, a row for every regime; with `grids`, below the grids it comes from.

    Paper: Fig. 4 (`fig:scaling-laws-1d-dims`), Fig. 8 (`app-fig:scaling-laws-1d-dims`), Fig. 9
    (`app-fig:scaling-curves-regimes`).
    """
    from recallscope.figures.accuracy_panels import draw_bar, draw_size_bar
    from recallscope.figures.style import PAGE

    regimes = regimes_here(runs, wanted)[: len(wanted)]
    every = {key: [regime_part(runs, *key, regime) for regime in regimes] for key in PRINTED_A}
    columns = {key: found for key, found in every.items() if any(found)}  # what this scale trains
    parts = list(zip(*columns.values(), strict=True))
    labels = [part.label for row in parts for part in row if part]
    lost = sum(len(rows) - len(learned(rows)) for rows in map(runs.rows, labels))
    note = f"{source_line(runs, curves.name, labels)}; {NOTE}; points: mean of seeds, coloured by $N$"
    note += f", {lost} left out that stayed at chance" if lost else ""
    note += "; grids: best of seeds" if grids else ""
    width = max(0.35 * len(columns) + 0.1, 0.6) * PAGE
    with sheet(width, 2.4 * (len(regimes) + grids) + 0.4, note) as figure:
        axes = figure.subplots(len(regimes) + grids, len(columns), squeeze=False)
        if grids:
            for part, ax in zip(parts[0], axes[0], strict=True):
                draw_part(runs, part, ax)
            draw_bar(figure, axes[0])
        found = [
            [
                curve_of(runs, part.label, PRINTED_A[key][0]) if part else None
                for part, key in zip(row, columns, strict=True)
            ]
            for row in parts
        ]
        sizes = [float(N) for row in found for curve in row if curve for N in curve.group]
        for regime, row, of_row, panels in zip(regimes, found, parts, axes[int(grids) :], strict=True):
            for curve, part, key, ax in zip(row, of_row, columns, panels, strict=True):
                draw_curve(runs, part, curve, ax, PRINTED_A[key][1], sizes)
            panels[0].set_ylabel(f"{regime_name(regime)}\naccuracy")
        draw_size_bar(figure, axes[int(grids) :].flat, sizes, "$N$")
        for ax, (model, task) in zip(axes[0], columns, strict=True):
            ax.set_title(f"({'abc'[list(PRINTED_A).index((model, task))]}) {task.upper()}, {model}")
    return figure
