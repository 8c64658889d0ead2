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
from recallscope.analysis.seed_noise import Ends, interval
from recallscope.analysis.table import cells_of, learned
from recallscope.studies.claims import Check, Finding, by_conditions, by_distance, own_check, within
from recallscope.studies.dn_parts import (
    AXES,
    BOOTSTRAP,
    EXAMPLE,
    FULL_EXAMPLE,
    FULL_GRIDS,
    LINEAR_GRIDS,
    REGIMES,
    coefficient_ratio,
    effective_dimensions,
    fit_part,
    full_and_linear,
    full_parts,
    linear_parts,
    mean_grid,
    regime_name,
    regime_part,
    regimes_here,
    scaled_errors,
)
from recallscope.studies.experiment import Part, Scale, experiment
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
    """a, b and the spread around the curve, over all linear grids."""
    by_task = sorted(LINEAR_GRIDS, key=lambda label: LINEAR_GRIDS[label][0])
    labels = [label for label in (*by_task, EXAMPLE) if label in runs.parts]
    missing = runs.missing(*labels)
    fits = {label: fit for label in labels if (fit := fit_part(rows := runs.rows(label), runs.noise(rows)))}
    checks = (
        Check(
            "fig-9", "a of Phi(x - b), fitted to every linear grid", "a = 1 at AR, 5/4 at MQAR, in all regimes", "fig-9"
        ),
        Check("rem-4.3", "b of Phi(x - b), fitted to the same grids", "b about sqrt(2 log V)", "fig-9"),
        Check("fig-8", "Do the cells fall on one curve Phi(x - b)?", "fully explained by the one variable x", "fig-8"),
    )
    if not fits:
        yield from (check.untested("too few cells done", missing) for check in checks)
        return
    printed = {label: PRINTED_A["linear", LINEAR_GRIDS.get(label, ("mqar", ""))[0]][0] for label in fits}
    holds = [_has(printed[label], fit.a_interval) for label, fit in fits.items()]
    root, typical = (
        [_has(getattr(fit, b), fit.b_interval) for fit in fits.values()] for b in ("b_printed", "b_typical")
    )
    table = (
        ("grid", "a printed", "a fitted", "sqrt(2 log V)", "m_V", "b fitted", "spread"),
        *tuple(
            (
                label.removeprefix("linear "),
                f"{printed[label]:g}",
                f"{fit.a:.2f} {interval(*fit.a_interval)}",
                f"{fit.b_printed:.2f}",
                f"{fit.b_typical:.2f}",
                f"{fit.b:.2f} {interval(*fit.b_interval)}",
                f"{fit.mean_error:.3f}, at most {fit.max_error:.3f}",
            )
            for label, fit in fits.items()
        ),
    )
    count, spread = len(fits), np.array([fit.mean_error for fit in fits.values()])
    ranges = {
        task: [fit.a for label, fit in fits.items() if LINEAR_GRIDS.get(label, ("mqar", ""))[0] == task]
        for task in ("ar", "mqar")
    }
    evidence = (
        f"{sum(fit.runs for fit in fits.values())} runs, {sum(fit.cells for fit in fits.values())} cells, mean of "
        f"seeds, a and b fitted to each grid; 95 % intervals from {BOOTSTRAP} resamplings of cells, seed noise included"
    )
    yield checks[0].answer(
        "; ".join(f"{task.upper()} {min(a):.2f} to {max(a):.2f}" for task, a in ranges.items() if a)
        + f"; the interval contains the printed a in {sum(holds)} of {count} grids",
        by_conditions(all(holds), 2 * sum(holds) > count, IN_INTERVALS),
        evidence,
        missing,
        table,
    )
    yield checks[1].answer(
        f"the interval contains sqrt(2 log V) in {sum(root)} of {count} grids, and m_V in {sum(typical)}; b is "
        f"{np.mean([fit.b - fit.b_printed for fit in fits.values()]):+.2f} from sqrt(2 log V) on average, "
        f"{np.mean([fit.b - fit.b_typical for fit in fits.values()]):+.2f} from m_V",
        by_conditions(all(root), 2 * sum(root) > count, IN_INTERVALS),
        evidence,
        missing,
        table,
    )
    yield checks[2].answer(
        f"mean distance from the best curve {spread.mean():.3f} ({spread.min():.3f} to {spread.max():.3f} by grid),"
        f" at most {max(fit.max_error for fit in fits.values()):.3f}",
        by_distance("mean distance", float(spread.mean()), 0.015, 0.05),
        evidence,
        missing,
        table,
    )


IN_INTERVALS = "holds: all 95 % intervals contain the printed value; approximately: more than half of them"


def _has(value: float, ends: Ends) -> bool:
    """Whether it is in the interval, which has no width where runs obey the curve exactly."""
    return within(value, (ends[0] - 1e-6, ends[1] + 1e-6))


def _fitted(fit: Fit | None) -> tuple[str, str]:
    return (
        (f"{fit.a:.2f} {interval(*fit.a_interval)}", f"{fit.b:.2f} {interval(*fit.b_interval)}") if fit else ("-", "-")
    )


@curves.findings
def half_of_a(runs: PaperRuns) -> Iterator[Finding]:
    """The a of the full model beside the linear one's, in every regime."""
    paper = "a_full about a_linear / 2, found heuristically"
    check = Check("sec-5.2", "Is a of the full model half of the linear one's?", paper, "fig-4")
    said, table, why = [], [], "no regime with runs of both models"
    apart, together = list[bool](), list[bool]()
    missing = runs.missing(*FULL_GRIDS.values())
    for both in full_and_linear(runs):
        noises = runs.noise(both.full), runs.noise(both.linear)
        fits = (fit_part(rows, noise) for rows, noise in zip((both.full, both.linear), noises, strict=True))
        try:
            grids = mean_grid(both.full), mean_grid(both.linear)
            ratio = coefficient_ratio(*grids, np.random.default_rng(0), bootstrap=BOOTSTRAP, noises=noises)
        except ValueError as error:
            why = str(error)
            continue
        for found, ends in ((apart, ratio.interval), (together, ratio.shared_b_interval)):
            found.append(within(0.5, ends) and ends[1] < 1)
        texts = (
            f"{ratio.value:.2f} {interval(*ratio.interval)}",
            f"{ratio.shared_b:.2f} {interval(*ratio.shared_b_interval)}",
        )
        said.append(f"({both.regime}) {texts[1]}, or {texts[0]} with a b each")
        table.append((both.regime, *(text for fit in fits for text in _fitted(fit)), *texts, both.description))
    if not said:
        yield check.untested(why, missing)
        return
    yield check.answer(
        f"a_full / a_linear with one b for both: {'; '.join(said)}",
        by_conditions(
            all(apart) and all(together),
            all(together),
            "holds: in every regime both 95 % intervals of the ratio contain 1/2 and exclude 1; approximately: the one "
            "with one b for both does",
        ),
        "mean of seeds, on the cells that both models have; 95 % intervals by resampling cells, the same for both, "
        "seed noise included",
        missing,
        (("regime", "a_full", "b_full", "a_linear", "b_linear", "ratio", "ratio, one b", "runs"), *table),
    )


@curves.findings
def which_linear(runs: PaperRuns) -> Iterator[Finding]:
    """The full model as a linear one of other dimensions: chosen on half of one regime, checked on all the rest."""
    check = own_check("Does a linear Mamba of other dimensions match the full one's accuracy?", "fig-4")
    missing = runs.missing(*FULL_GRIDS.values())
    grids = {both.regime: cells_of(both.full) for both in full_and_linear(runs)}
    grids = {regime: cells for regime, cells in grids.items() if len(cells)}
    cells = grids.pop("iii", cells_of(DataFrame(), AXES))
    try:
        found = effective_dimensions(cells)
    except ValueError as error:
        yield check.untested(str(error), missing)
        return
    best, *others = found.rules
    elsewhere = {regime: np.abs(scaled_errors(best.rule, found.factor, new)) for regime, new in grids.items()}
    checked = [best.error_checked, *(float(gaps.mean()) for gaps in elsewhere.values())]
    rest = "; ".join(f"{rule.rule} {rule.error_chosen:.3f} and {rule.error_checked:.3f}" for rule in others)
    yield check.answer(
        f"{best.rule} with c = {found.factor:.2f} is off by {best.error_chosen:.4f} on the cells it was chosen on, by "
        f"{best.error_checked:.4f} on the others of regime (iii)"
        + "".join(f", by {gaps.mean():.3f} in regime ({regime})" for regime, gaps in elsewhere.items())
        + f". Other rules: {rest}",
        by_conditions(
            max(checked) <= MATCHES,
            min(checked) <= MATCHES,
            f"holds: mean absolute error up to {MATCHES} wherever the rule was not chosen; approximately: somewhere",
        ),
        f"{found.cells} cells of regime (iii), mean of seeds ({runs.noise(runs.rows(FULL_EXAMPLE))}), halves as on a "
        "chess board; runs that stayed at chance are left out; linear: trained-sharing",
        missing,
    )


MATCHES = 0.02  # mean absolute error


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
