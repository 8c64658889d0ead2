"""D-N grids: do designed, predicted and trained accuracy agree, and what is accuracy worth at equal N D?

Paper: Sec. 5.1 (`sec:scaling-laws-exp`), Fig. 1 (`fig:scaling-laws-2d-dims`), Fig. 7 (`app-fig:scaling-laws-2d-dims`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from pandas import DataFrame, concat

from recallscope.analysis.accuracy_grid import AccuracyGrid, law_grid, planned_cells
from recallscope.analysis.compare import compare_law, law_on_cells, law_points
from recallscope.analysis.seed_noise import interval, mean_gap
from recallscope.analysis.table import COMPARED, Reduce, accuracies, cells_of, seeds_by
from recallscope.records import RunRecord
from recallscope.studies.claims import Check, Finding, by_conditions, by_distance, own_check
from recallscope.studies.component_variants import found_in
from recallscope.studies.dn_parts import (
    ALL_LINEAR,
    AXES,
    DESIGNED,
    EXAMPLE,
    FULL,
    FULL_GRIDS,
    LARGE_BATCH,
    LINEAR,
    LINEAR_GRIDS,
    REGIMES,
    LawChoice,
    full_and_linear,
    full_parts,
    law_choices,
    linear_grids,
    linear_parts,
    part_label,
    regime_name,
    regime_part,
    regimes_here,
)
from recallscope.studies.experiment import DesignedPart, Misses, Part, Scale, experiment
from recallscope.studies.law_table import SHOWN_LAWS, mae, where_it_fails
from recallscope.studies.markdown import table
from recallscope.studies.paper_runs import PaperRuns, draw_part, sheet, source_line
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.theory.law import find_law, laws_for, recommended
from recallscope.theory.laws.paper import large_context_law

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console

# Published with the paper's code: the small linear grid, V=512, L=64, N_f=16, batch 32; (D, N) to accuracy
PUBLISHED_EXAMPLE = {
    (16, 8): 0.24, (16, 16): 0.32, (32, 8): 0.64, (32, 16): 0.89, (32, 24): 0.94, (32, 32): 0.95, (48, 8): 0.82,
    (48, 16): 0.98, (48, 24): 1.0, (48, 32): 1.0, (64, 8): 0.89, (64, 16): 1.0, (64, 24): 1.0, (64, 32): 1.0,
}  # fmt: skip


@experiment(
    "dn-grid",
    "accuracy over D and N: designed, predicted, trained linear, trained full; three regimes",
    claims=("sec-5.1", "fig-1", "fig-7"),
    presets={"dn-linear": LINEAR, "dn-mamba": FULL},
    reads=("components",),
)
def dn_grid(scale: Scale) -> Iterator[Part | DesignedPart]:
    """Designed circuits, then the trained grids."""
    D, N, draws, sequences = {
        "quick": ((16, 32, 48, 64), (8, 16, 24, 32), 4, 125),
        "small": ((8, 16, 32, 48, 64), (2, 4, 8, 16, 32), 40, 1600),
        "paper": (tuple(range(2, 65, 2)), tuple(range(2, 33)), 20, 500),
    }[scale]
    for regime in ("iii",) if scale == "quick" else REGIMES:
        task = MQARSpec.model_validate(REGIMES[regime])
        yield DesignedPart(DESIGNED[regime], task, D, N, draws, sequences)
    yield from linear_parts(scale)
    yield from full_parts(scale)


# Findings


@dn_grid.findings
def example_cell_by_cell(runs: PaperRuns) -> Iterator[Finding]:
    """The authors' small grid against the accuracies published with the code."""
    paper = "14 accuracies published with the code (batch 32, 1 seed), 0.24 at (16, 8) to 1.00"
    check = Check("sec-5.1", "The authors' small linear grid, cell by cell", paper)
    measured = {(r.fields["embed_dim"], r.fields["state_dim"]): r for r in runs.records(EXAMPLE)}
    if len(measured) < len(PUBLISHED_EXAMPLE):
        yield check.untested(f"{len(measured)} of {len(PUBLISHED_EXAMPLE)} runs done")
        return
    gaps = {cell: measured[cell].test_accuracy - said for cell, said in PUBLISHED_EXAMPLE.items()}
    worst = max(gaps, key=lambda cell: abs(gaps[cell]))
    seconds = sum(record.seconds for record in measured.values())
    yield check.answer(
        f"mean difference {np.mean(list(gaps.values())):+.4f}, largest {gaps[worst]:+.4f} at (D, N) = {worst}",
        by_distance("largest difference", abs(gaps[worst]), 0.01, 0.03),
        f"14 runs, 1 seed, {seconds:.0f} s of one core in all; published values have two digits",
    )


@dn_grid.findings
def theory_against_trained(runs: PaperRuns) -> Iterator[Finding]:
    """Column (b), Thm 4.2, against column (c); beside it the paper's other forms of the law, and ours."""
    labels = [label for label in linear_grids(runs) if LINEAR_GRIDS.get(label, ("mqar", ""))[0] == "mqar"]
    missing = runs.missing(*labels)
    paper = "theory (b) and trained linear models (c) closely align; (b) is Thm 4.2"
    check = Check("fig-7", "Theory (Thm 4.2) against trained linear models, MQAR", paper, "fig-7")
    planned = sum(len(planned_cells(runs.parts[label].grid)) for label in labels)
    cells = cells_of(rows) if len(rows := runs.rows(*labels)) else rows
    if 2 * len(cells) < planned:
        yield check.untested(f"{len(cells)} of {planned} cells done", missing)
        return
    measured = accuracies(cells)
    laws: dict[str, Callable[..., Any]] = {
        "Thm 4.2, mean over the queries": find_law("trained"),
        "Thm 4.2 as printed, with one term more than its divisor": find_law("trained-printed"),
        "Thm 4.2 with m_V for sqrt(2 log V)": partial(large_context_law, level="mv"),
        "Rem 4.3 as printed, with sqrt(2 log V)": find_law("unified"),
        "Rem 4.3 with m_V": find_law("unified-mv"),
        "ours, trained-sharing": find_law("trained-sharing"),
    }
    off = {name: measured - law_on_cells(law, cells) for name, law in laws.items()}
    theorem, *others = off
    here = {label: cells_of(runs.rows(label)) for label in labels}
    by_regime = (
        f"{label.removeprefix('linear ')} {np.abs(accuracies(one) - law_on_cells(laws[theorem], one)).mean():.3f}"
        for label, one in here.items()
    )
    yield check.answer(
        f"mean absolute error {mae(off[theorem])} ({', '.join(by_regime)}). On the same cells: "
        + "; ".join(f"{name}, {np.abs(off[name]).mean():.3f}" for name in others),
        by_distance("mean absolute error", np.abs(off[theorem]).mean(), 0.02, 0.06),
        f"{len(rows)} runs, {len(cells)} cells, mean of seeds; 95 % interval over cells",
        missing,
        (
            ("law", "mean absolute error", "measured minus predicted, mean"),
            *tuple((name, mae(errors), f"{errors.mean():+.3f}") for name, errors in off.items()),
        ),
    )


@dn_grid.findings
def theory_against_designed(runs: PaperRuns) -> Iterator[Finding]:
    """Thm F.2 is about column (a); the paper does not say that (a) and (b) agree."""
    grids = {
        regime: AccuracyGrid.from_circuits(rows)
        for regime, label in DESIGNED.items()
        if len(rows := runs.designed(label))
    }
    check = Check("thm-f.2", "Thm F.2 against hand-constructed weights, MQAR", "the law of the designed model", "fig-7")
    if not grids:
        yield check.untested("no circuits measured yet")
        return
    names = ("designed", "designed-printed", "designed-unified", "designed-unified-mv", "designed-improved")
    said = dict(
        zip(names, ("Thm F.2", "its sum as printed", "Rem 4.3 as printed", "Rem 4.3 with m_V", "ours"), strict=True)
    )
    off = {
        name: np.concatenate(
            [[cell.error for cell in compare_law(grid, find_law(name)).cells] for grid in grids.values()]
        )
        for name in names
    }
    by_regime = (
        f"({regime}) {compare_law(grid, find_law('designed')).mean_error:.3f}" for regime, grid in grids.items()
    )
    draws = min(runs.designed(DESIGNED[regime])["seed"].nunique() for regime in grids)
    yield check.answer(
        f"mean absolute error {mae(off['designed'])} ({', '.join(by_regime)}). On the same cells: "
        + "; ".join(f"{said[name]} ({name}) {np.abs(off[name]).mean():.3f}" for name in names[1:]),
        by_distance("mean absolute error", np.abs(off["designed"]).mean(), 0.02, 0.06),
        f"{len(off['designed'])} cells, {draws} draws of the weights each; 95 % interval over cells",
    )


def equal_products(cells: Iterable[tuple[int, int]]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Pairs of cells (D, N) with equal N D, the wider first."""
    return [
        (wide, narrow)
        for wide in sorted(cells)
        for narrow in sorted(cells)
        if wide[0] > narrow[0] and wide[0] * wide[1] == narrow[0] * narrow[1]
    ]


@dn_grid.findings
def trade_off(runs: PaperRuns) -> Iterator[Finding]:
    """Whether D and N count alike."""
    question, paper = "Accuracy at equal N D: can D and N be traded?", "the inverse D-N trade-off that Rem 4.4 predicts"
    labels = linear_grids(runs)
    grids = {label: seeds_by(runs.rows(label), *AXES) for label in labels}
    pairs = [((label, *w), (label, *n)) for label, cells in grids.items() for w, n in equal_products(cells)]
    missing = runs.missing(*labels)
    if len(pairs) < 4:
        why = "fewer than four pairs of cells with equal N D are done"
        yield Check("rem-4.4", question, paper).untested(why, missing)
        return
    noise = runs.noise(runs.rows(*labels))
    every = {(label, *cell): seeds for label, cells in grids.items() for cell, seeds in cells.items()}
    gap = mean_gap(pairs, every, noise)
    sizes = np.abs(gap.gaps)
    yield Check("rem-4.4", question, paper, "fig-1").answer(
        f"at equal N D the wider model (larger D, smaller N) is better by {gap.mean:+.3f} "
        f"{interval(*gap.interval, 3)}; largest gap {sizes.max():.2f}",
        by_distance(f"mean size of the gaps, {sizes.mean():.3f}", float(sizes.mean()), 0.03, 0.1),
        f"{len(pairs)} pairs of cells with equal N D and N <= D, all linear grids, mean of seeds; 95 % interval: "
        f"{noise}. Rem 4.4 is about the order of N D, not about equality",
        missing,
    )


@dn_grid.findings
def full_against_linear(runs: PaperRuns) -> Iterator[Finding]:
    """Column (d) against column (c)."""
    paper = "the full model closely matches the linear one (Sec. 5.1), with improved performance (Fig. 4)"
    check = Check("fig-4", "Is full Mamba better than the linear one at equal D and N?", paper, "fig-1")
    every = list(full_and_linear(runs))
    missing = runs.missing(*FULL_GRIDS.values())
    cells = {
        (both.regime, model, *cell): seeds
        for both in every
        for model, rows in (("full", both.full), ("linear", both.linear))
        for cell, seeds in seeds_by(rows, *AXES).items()
    }
    pairs = [(key, beside) for key in cells if key[1] == "full" and (beside := (key[0], "linear", *key[2:])) in cells]
    if not pairs:
        yield check.untested("no cell with runs of both yet", missing)
        return
    noise = runs.noise(concat([both.full for both in every]))  # the larger of the two
    gap = mean_gap(pairs, cells, noise)
    by_regime = {
        regime: np.mean([value for (key, _), value in zip(pairs, gap.gaps, strict=True) if key[0] == regime])
        for regime in dict.fromkeys(key[0] for key, _ in pairs)
    }
    worse = [
        f"{value:+.3f} at ({key[0]}), (D, N) = ({key[2]}, {key[3]})"
        for (key, _), value in zip(pairs, gap.gaps, strict=True)
        if value < -0.01
    ]
    yield check.answer(
        f"better by {gap.mean:+.3f} {interval(*gap.interval, 3)} on average ("
        + ", ".join(f"({regime}) {value:+.3f}" for regime, value in by_regime.items())
        + f"), {gap.gaps.min():+.3f} to {gap.gaps.max():+.3f} by cell"
        + (f"; worse: {', '.join(worse)}" if worse else ""),
        by_conditions(
            gap.interval[0] > 0 and not worse,
            gap.interval[0] > 0 or not worse,
            "holds: the interval is above 0 and no cell is worse by more than 0.01; approximately: one of both",
        ),
        f"{len(pairs)} cells, mean of seeds against mean of seeds; "
        + "; ".join(f"({both.regime}) {both.description}" for both in every)
        + f"; 95 % interval: {noise}",
        missing,
    )


@dn_grid.findings
def law_of_the_full_model(runs: PaperRuns) -> Iterator[Finding]:
    """Which law is closest to full Mamba: chosen on half of one regime, checked on the other half and the others.

    By the best of seeds, as the paper has it: full Mamba falls apart into seeds that found a way to hold facts in banks
    and seeds that did not, and a mean of both is the recall of neither. The mean is said as well.
    """
    check = own_check("Is the law we recommend for full Mamba the nearest one?", "fig-4")
    missing = runs.missing(*FULL_GRIDS.values())
    grids = {both.regime: both.full for both in full_and_linear(runs)} | {"components": other_full_rows(runs)}
    grids = {regime: rows for regime, rows in grids.items() if len(rows)}
    by: dict[Reduce, list[LawChoice]] = {}
    for how in ("best", COMPARED):
        try:
            cells = {regime: cells_of(rows, reduce=how) for regime, rows in grids.items()}
            by[how] = law_choices("iii", cells, laws_for("mamba"))
        except (ValueError, KeyError):
            yield check.untested("too few cells of regime (iii) to choose on one half and check on the other", missing)
            return
    ours = recommended()["mamba"]
    nearest = {how: sorted(choices, key=lambda one: one.error) for how, choices in by.items()}
    names = {
        "full-unified": "a/2 with sqrt(2 log V), as printed",
        "full-unified-mv": "the paper's a/2 with m_V",
        ours: "ours",
    }
    text = {
        how: ", ".join(
            f"{one.law}{f' ({said})' if (said := names.get(one.law)) else ''} {one.error:.4f}" for one in choices
        )
        for how, choices in nearest.items()
    }
    wins = [nearest[how][0].law == ours for how in nearest]
    yield check.answer(
        f"mean absolute errors by the best of seeds: {text['best']}. By their mean: {text[COMPARED]}",
        by_conditions(
            all(wins),
            any(wins),
            f"holds: {ours} is nearest by the best and by the mean of seeds; approximately: by one",
        ),
        f"{sum(entry.cells for entry in by['best'][0].regimes.values())} cells ({runs.noise(grids['iii'])}); runs that "
        f"stayed at chance are left out. {ours} was chosen by the best of seeds on half of the cells of regime (iii)",
        missing,
        (
            ("law", "seeds", "chosen on: half of (iii)", "other half of (iii)", *sorted(grids), "all"),
            *tuple(
                (
                    one.law,
                    how,
                    f"{one.error_chosen:.4f}",
                    f"{one.error_checked:.4f}",
                    *tuple(f"{entry.mean_error:.3f}" for _, entry in sorted(one.regimes.items())),
                    f"{one.error:.4f}",
                )
                for how, choices in nearest.items()
                for one in choices
            ),
        ),
    )


def other_full_rows(runs: PaperRuns) -> DataFrame:
    """Full models of the experiment `components`, in cells of which there are two seeds at least."""
    full = [one.rows for (_, form), one in found_in(runs).items() if form == "full" and len(one.rows) > 1]
    return concat(full) if full else DataFrame()


# The law table


@dn_grid.law_cells
def linear_cells(runs: PaperRuns) -> dict[str, DataFrame]:
    """Every linear grid by itself, all of them together, and those with other batches."""
    by_task = sorted(LINEAR_GRIDS, key=lambda label: LINEAR_GRIDS[label][0])
    groups = {label.removeprefix("linear "): runs.rows(label) for label in by_task}
    others = {"batch 32, MQAR (iii)": runs.rows(EXAMPLE), "batch 512, AR (iii)": runs.rows(LARGE_BATCH)}
    return groups | {ALL_LINEAR: runs.rows(*by_task)} | others


@dn_grid.law_notes
def where_they_fail(runs: PaperRuns, misses: Misses) -> Iterator[str]:
    """For each law, its error by N / D on all linear grids, and its worst cell."""
    for law, cells in misses.get(ALL_LINEAR, {}).items():
        if law in SHOWN_LAWS:
            yield where_it_fails(law, cells)


# Figures


@dn_grid.figure("fig-1", "recall over D and N, regimes (i) and (ii)", wanted=("i", "ii"))
@dn_grid.figure("fig-7", "recall over D and N, three regimes", wanted=tuple(REGIMES))
def dims_figure(runs: PaperRuns, wanted: Sequence[str]) -> Figure:
    """Hand-constructed, predicted and trained accuracy over D and N: a row per regime, a column for all this scale has.

    Our law is beside the paper's; above each is its mean absolute error (MAE) against the trained linear models.

    Paper: Fig. 1 (`fig:scaling-laws-2d-dims`), Fig. 7 (`app-fig:scaling-laws-2d-dims`).
    """
    from recallscope.figures.accuracy_panels import draw_bar, draw_grid
    from recallscope.figures.style import PAGE

    regimes = regimes_here(runs, wanted)
    regimes = [one for one in regimes if len(runs.rows(part_label("linear", "mqar", one)))] or regimes
    linear, full = ([regime_part(runs, model, "mqar", regime) for regime in regimes] for model in ("linear", "full"))
    designed = [DESIGNED[regime] for regime in regimes]
    labels = [part.label for part in (*linear, *full) if part]
    text = source_line(runs, dn_grid.name, labels, designed)
    titles = {
        "designed": "(a) hand-constructed",
        "trained": "(b) paper's law, Thm 4.2",
        "trained-sharing": "our law, trained-sharing",
        "linear": "(c) trained, linear",
        "full": "(d) trained, full",
    }
    absent = {"full"} if not any(full) else set()
    absent |= {"designed"} if not runs.designed_parts.keys() & set(designed) else set()
    columns = [name for name in titles if name not in absent]
    note = f"{text}; grids: best of seeds; MAE: mean absolute error against (c), mean of seeds; white: $N>D$"
    note += "; hatched: no run yet" if runs.missing(*labels) else ""
    with sheet(0.3 * len(columns) * PAGE, 2.1 * len(regimes) + 0.6, note) as figure:
        rows = figure.subplots(len(regimes), len(columns), squeeze=False)
        for place, regime in enumerate(regimes):
            for name, ax in zip(columns, rows[place], strict=True):
                title = [titles[name]] if place == 0 else []
                if name == "designed":
                    draw_circuits(runs.designed(DESIGNED[regime]), ax)
                elif name in ("linear", "full"):
                    draw_part(runs, (linear if name == "linear" else full)[place], ax)
                elif part := linear[place]:
                    draw_grid(law_grid(find_law(name), part.grid), ax)
                    error = compare_law(AccuracyGrid.from_runs(runs.rows(part.label), reduce=COMPARED), find_law(name))
                    title += [f"MAE {error.mean_error:.3f}"] if error.cells else []
                ax.set(title="\n".join(title), xlabel="$D$" if regime == regimes[-1] else "", ylabel="")
            rows[place, 0].set_ylabel(f"{regime_name(regime)}\n$N$")
        draw_bar(figure, rows.flat)
    return figure


def draw_circuits(circuits: DataFrame, ax: Axes) -> Axes:
    """Accuracy of hand-constructed weights, mean over their draws."""
    from recallscope.figures.accuracy_panels import draw_grid, draw_missing

    if len(circuits):
        return draw_grid(AccuracyGrid.from_circuits(circuits), ax)
    return draw_missing(ax, why="not measured yet")


@dn_grid.summary
def what_the_grids_show(runs: PaperRuns) -> str:
    """How far both laws are from the trained linear models of Fig. 7, and how well hand-constructed weights do."""
    trained, circuits = {}, {}
    for regime in regimes_here(runs, tuple(REGIMES)):
        part = regime_part(runs, "linear", "mqar", regime)
        if part and len(rows := runs.rows(part.label)):
            trained[regime] = AccuracyGrid.from_runs(rows, reduce=COMPARED)
            circuits[regime] = seeds_by(runs.designed(DESIGNED[regime]), *AXES)
    if not trained:
        return ""
    paper, ours = (law_points(find_law(name), trained) for name in ("trained", "trained-sharing"))
    both = [
        (float(circuits[regime][D, N].mean()), accuracy)
        for regime, grid in trained.items()
        for D, N, accuracy in grid.measured[[*AXES, "test_accuracy"]].itertuples(index=False)
        if (D, N) in circuits[regime]
    ]
    constructed = (
        "; hand-constructed weights reach {:.2f} and trained ones {:.2f} on average".format(*np.mean(both, 0))
        if both
        else ""
    )
    return (
        f"What the grids show: over {paper.cells} trained model sizes, predicted and trained accuracy differ by "
        f"{paper.mean_error:.3f} on average with the paper's law (Thm 4.2) and by {ours.mean_error:.3f} with ours "
        f"({ours.law}){constructed}."
    )


@dn_grid.figure("laws", "ours: three laws against every trained linear cell")
def laws_figure(runs: PaperRuns) -> Figure:
    """Predicted against measured accuracy on every trained linear cell, for three laws."""
    from recallscope.figures.accuracy_panels import draw_law_points
    from recallscope.figures.style import BLUE, GREEN, PAGE, VERMILION

    shown = {
        "unified": r"unified law as printed, $\sqrt{2\,\log V}$",
        "unified-mv": "unified law with $m_V$",
        "trained-sharing": "sharing law (ours)",
    }
    kinds = LINEAR_GRIDS | {EXAMPLE: ("example", "iii")}
    colour_of = dict(zip(REGIMES, (BLUE, VERMILION, GREEN), strict=True))
    marker_of = {"mqar": "o", "ar": "^", "example": "s"}
    colours = {label: colour_of[regime] for label, (_, regime) in kinds.items()}
    markers = {label: marker_of[task] for label, (task, _) in kinds.items()}
    text = source_line(runs, dn_grid.name, list(kinds))
    grids = {label: AccuracyGrid.from_runs(rows, reduce=COMPARED) for label in kinds if len(rows := runs.rows(label))}
    with sheet(1.2 * PAGE, 3.3, f"{text}; a dot is a cell, mean of seeds; on the line a law is right") as figure:
        axes = figure.subplots(1, len(shown), sharey=True)
        for ax, (name, title) in zip(axes, shown.items(), strict=True):
            points = law_points(find_law(name), grids)
            text = f"{title}\nmean error {points.mean_error:.3f}, {points.cells} cells"
            draw_law_points(points, ax, title=text, colours=colours, markers=markers)
        for ax in axes[1:]:
            ax.set_ylabel("")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4)
    return figure


# Tables in the terminal


@dn_grid.tables
def print_grids(runs: PaperRuns, console: Console) -> None:
    """Print the authors' small example: predicted by the paper's law and ours, hand-constructed, and trained."""
    from rich.table import Table

    rows = runs.rows(EXAMPLE)
    if rows.empty:
        return
    trained = AccuracyGrid.from_runs(rows)
    circuits = runs.designed(DESIGNED["iii"])
    grids = {
        "paper's law, Thm 4.2": AccuracyGrid.from_law(find_law("trained"), trained),
        "our law, trained-sharing": AccuracyGrid.from_law(find_law("trained-sharing"), trained),
        **({"hand-constructed weights": AccuracyGrid.from_circuits(circuits)} if len(circuits) else {}),
        "trained, linear": trained,
    }
    columns = []
    for title, grid in grids.items():  # rows D, columns N; only cells that the trained grid has
        accuracy = {(D, N): p for D, N, p in grid.measured[[*AXES, "test_accuracy"]].itertuples(index=False)}
        table = Table(title=title, box=None, pad_edge=False, header_style="dim", title_justify="left")
        for heading in ("D \\ N", *trained.axes["state_dim"]):
            table.add_column(str(heading), justify="right")
        for i, D in enumerate(trained.axes["embed_dim"]):
            here = [N for j, N in enumerate(trained.axes["state_dim"]) if not np.isnan(trained.accuracy[i, j])]
            texts = {N: f"{accuracy[D, N]:.3f}" for N in here if (D, N) in accuracy}
            table.add_row(str(D), *(texts.get(N, "-") for N in trained.axes["state_dim"]))
        columns.append(table)
    beside = Table.grid(padding=(0, 3))
    beside.add_row(*columns[:2])
    beside.add_row()
    beside.add_row(*columns[2:])
    console.print(beside, highlight=False)


# Tables of docs/TABLES.md


def _cell(record: RunRecord) -> tuple[Any, Any]:
    return record.fields["embed_dim"], record.fields["state_dim"]


def linear_table(runs: PaperRuns, page: str = "") -> list[str]:
    """The authors' small linear grid beside every law."""
    rows, errors = [], []
    records = sorted(runs.records(EXAMPLE), key=_cell)
    for record in records:
        (D, N), seen = _cell(record), record.test_accuracy
        published = PUBLISHED_EXAMPLE[D, N]
        predicted = [float(find_law(name)(**REGIMES["iii"], embed_dim=D, state_dim=N)) for name in SHOWN_LAWS]
        errors.append([abs(seen - p) for p in predicted])
        laws = (f"{p:.3f}" for p in predicted)
        rows.append([D, N, f"{published:.2f}", f"{seen:.4f}", f"{seen - published:+.3f}", *laws,
                     f"{record.seconds:.1f}"])  # fmt: skip
    if not rows:
        return []
    seconds = sum(record.seconds for record in records)
    rows.append(["mean", "error", "", "", "", *(f"{error:.4f}" for error in np.mean(errors, 0)), f"{seconds:.0f}"])
    return table(["D", "N", "published", "measured", "difference", *SHOWN_LAWS, "seconds"], rows)


def full_table(runs: PaperRuns, page: str = "") -> list[str]:
    """Full Mamba-1 on the same grid: every seed, the best, and the linear model beside it."""
    full, linear = runs.records(FULL_GRIDS["iii"]), runs.records(EXAMPLE)
    if not full or not linear or runs.scale == "quick":  # the quick scale has another task under this label
        return []
    by_cell: dict[tuple[int, int], list[RunRecord]] = {}
    for record in sorted(full, key=lambda record: record.spec.seed):
        by_cell.setdefault(_cell(record), []).append(record)
    beside = {_cell(record): record.test_accuracy for record in linear}
    law, rows = find_law("full-unified-mv"), []
    for (D, N), members in sorted(by_cell.items()):
        accuracies = [record.test_accuracy for record in members]
        seeds, steps = ", ".join(f"{p:.4f}" for p in accuracies), ", ".join(str(record.steps) for record in members)
        p, seconds = float(law(**REGIMES["iii"], embed_dim=D, state_dim=N)), sum(record.seconds for record in members)
        rows.append([D, N, f"{beside.get((D, N), np.nan):.3f}", seeds, f"{max(accuracies):.4f}", steps, f"{p:.3f}",
                     f"{seconds:.0f}"])  # fmt: skip
    return table(["D", "N", "linear", "full, by seed", "best", "steps", "law with a/2, m_V", "seconds"], rows)
