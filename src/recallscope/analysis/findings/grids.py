"""D-N grids: do designed, predicted and trained accuracy agree, and what is accuracy worth at equal N D?

Paper: Sec. 5.1 (`sec:scaling-laws-exp`), Fig. 1 (`fig:scaling-laws-2d-dims`), Fig. 7 (`app-fig:scaling-laws-2d-dims`).
"""

from __future__ import annotations

import numpy as np

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.compare import compare_law
from recallscope.analysis.findings.finding import Finding, Verdict, untested
from recallscope.analysis.findings.words import full_and_linear, interval, verdict_of
from recallscope.analysis.paper_runs import PaperRuns
from recallscope.sweeps.paper_grids import EXAMPLE, REGIMES, part_label
from recallscope.theory.law import find_law

# Published with the paper's code: the small linear grid, V=512, L=64, N_f=16, batch 32; (D, N) to accuracy
PUBLISHED_EXAMPLE = {
    (16, 8): 0.24, (16, 16): 0.32, (32, 8): 0.64, (32, 16): 0.89, (32, 24): 0.94, (32, 32): 0.95, (48, 8): 0.82,
    (48, 16): 0.98, (48, 24): 1.0, (48, 32): 1.0, (64, 8): 0.89, (64, 16): 1.0, (64, 24): 1.0, (64, 32): 1.0,
}  # fmt: skip
LINEAR = tuple(part_label("linear", task, regime) for task in ("mqar", "ar") for regime in REGIMES)


def grid_findings(runs: PaperRuns) -> list[Finding]:
    """Everything the D-N grids say, but for the curves."""
    return [*_example(runs), *_theory(runs), *_designed(runs), *_trade_off(runs), *_full(runs)]


def _example(runs: PaperRuns) -> list[Finding]:
    question, paper = (
        "The authors' small linear grid, cell by cell",
        "14 accuracies (batch 32, 1 seed), .24 at (16, 8) to 1.00",
    )
    measured = {(r.spec.model.embed_dim, r.spec.model.state_dim): r for r in runs.records(EXAMPLE)}
    if len(measured) < len(PUBLISHED_EXAMPLE):
        return [untested("sec-5.1", question, paper, f"{len(measured)} of {len(PUBLISHED_EXAMPLE)} runs done")]
    gaps = {cell: measured[cell].test_accuracy - said for cell, said in PUBLISHED_EXAMPLE.items()}
    worst = max(gaps, key=lambda cell: abs(gaps[cell]))
    seconds = sum(record.seconds for record in measured.values())
    return [
        Finding(
            "sec-5.1", question, paper,
            f"mean difference {np.mean(list(gaps.values())):+.4f}, largest {gaps[worst]:+.4f} at (D, N) = {worst}",
            verdict_of(abs(gaps[worst]), 0.01, 0.03),
            f"14 runs, 1 seed, {seconds:.0f} s of one core in all; published values have two digits",
        )
    ]  # fmt: skip


def _theory(runs: PaperRuns) -> list[Finding]:
    """Column (b) against column (c): the printed law, and the law we hold to be right."""
    found = []
    for label in LINEAR:
        rows = runs.rows(label)
        if label not in runs.parts:
            continue
        question, paper = f"Theory against trained, {label}", "the grids agree (by eye)"
        missing = len(runs.parts[label].grid.cells()) - len(rows)
        if missing > len(rows):
            found.append(untested("fig-7", question, paper, f"{len(rows)} runs done", "fig-7", missing))
            continue
        grid = AccuracyGrid.from_runs(rows)
        printed, typical, sharing = (
            compare_law(grid, find_law(name)) for name in ("unified", "unified-mv", "trained-sharing")
        )
        cells = len(printed.cells)
        found.append(
            Finding(
                "fig-7",
                question,
                paper,
                f"printed law off by {printed.mean_error:.3f} on average (max {printed.max_error:.2f}); with m_V "
                f"{typical.mean_error:.3f} ({typical.max_error:.2f}); trained-sharing {sharing.mean_error:.3f} "
                f"({sharing.max_error:.2f})",
                verdict_of(printed.mean_error, 0.02, 0.06),
                f"{len(rows)} runs, {cells} cells, best of seeds; mean and largest |measured - predicted|",
                "fig-7",
                missing,
            )
        )
    return found


def _designed(runs: PaperRuns) -> list[Finding]:
    found = []
    for regime in REGIMES:
        rows = runs.designed(part_label("designed", "mqar", regime))
        if rows:
            grid = AccuracyGrid.from_circuits(rows)
            printed, improved = (
                compare_law(grid, find_law(name)) for name in ("designed-unified", "designed-improved")
            )
            found.append(
                Finding(
                    "fig-7",
                    f"Designed circuits against their law, MQAR ({regime})",
                    "the grids agree (by eye)",
                    f"printed law off by {printed.mean_error:.3f} (max {printed.max_error:.2f}); designed-improved "
                    f"{improved.mean_error:.4f} ({improved.max_error:.3f})",
                    verdict_of(printed.mean_error, 0.02, 0.06),
                    f"{len(printed.cells)} cells, {len({row['seed'] for row in rows})} draws of the weights each",
                    "fig-7",
                )
            )
    return found


def equal_products(grid: AccuracyGrid) -> list[tuple[tuple[int, int], tuple[int, int], float]]:
    """Pairs of cells (D, N) with equal N D, the wider first, and how much better the wider is."""
    cells = {}
    for place, accuracy in grid.cells():
        words = grid.words(place)
        D, N = words["embed_dim"], words["state_dim"]
        assert isinstance(D, int)
        assert isinstance(N, int)
        cells[(D, N)] = accuracy
    return [
        (wide, narrow, cells[wide] - cells[narrow])
        for wide in sorted(cells)
        for narrow in sorted(cells)
        if wide[0] > narrow[0] and wide[0] * wide[1] == narrow[0] * narrow[1]
    ]


def _trade_off(runs: PaperRuns) -> list[Finding]:
    gaps, cells, most = [], 0, 0.0
    for label in LINEAR:
        rows = runs.rows(label)
        if rows:
            grid = AccuracyGrid.from_runs(rows)
            pairs = equal_products(grid)
            gaps += [gap for *_, gap in pairs]
            cells += len(list(grid.cells()))
            most = max([most, *(abs(gap) for *_, gap in pairs)])
    question, paper = "Accuracy at equal N D: can D and N be traded?", "recall needs N D of order N_f log V (Rem 4.4)"
    if len(gaps) < 4:
        return [untested("rem-4.4", question, paper, "fewer than four pairs of cells with equal N D are done")]
    mean, error = float(np.mean(gaps)), float(np.std(gaps, ddof=1) / np.sqrt(len(gaps)))
    size = float(np.mean(np.abs(gaps)))
    verdict: Verdict = verdict_of(size, 0.03, 0.1)
    return [
        Finding(
            "rem-4.4", question, paper,
            f"at equal N D the wider model (larger D, smaller N) is better by {mean:+.3f} +- {error:.3f}; "
            f"largest gap {most:.2f}",
            verdict,
            f"{len(gaps)} pairs of cells with equal N D and N <= D, all linear grids; +- is the standard error; the "
            f"verdict is by the mean size of the gaps, {size:.3f}",
            "fig-1",
        )
    ]  # fmt: skip


def _full(runs: PaperRuns) -> list[Finding]:
    question, paper = "Is the full model better than the linear one?", "yes: its grid reaches further (Fig. 1 d)"
    full, linear = full_and_linear(runs)
    if not full or not linear:
        return [untested("fig-1", question, paper, "no runs of one of the two yet", "fig-1")]
    ours = _by_cell(AccuracyGrid.from_runs(full))
    beside = _by_cell(AccuracyGrid.from_runs(linear))
    shared = [cell for cell in ours if cell in beside]
    gaps = np.array([ours[cell] - beside[cell] for cell in shared])
    worse = [f"({cell[0]}, {cell[1]}) {gap:+.3f}" for cell, gap in zip(shared, gaps, strict=True) if gap < -0.01]
    said = f"better by {gaps.mean():+.3f} on average, range {interval(gaps.min(), gaps.max())}"
    return [
        Finding(
            "fig-1", question, paper,
            said + (f"; worse at {', '.join(worse)}" if worse else ""),
            "holds" if not worse else "holds approximately" if gaps.mean() > 0 else "does not hold",
            f"{len(shared)} cells, best of {max(len({r['seed'] for r in full}), 1)} seeds against 1 seed, batch 32",
            "fig-1",
        )
    ]  # fmt: skip


def _by_cell(grid: AccuracyGrid) -> dict[tuple[int, int], float]:
    cells = {}
    for place, accuracy in grid.cells():
        words = grid.words(place)
        cells[(int(words["embed_dim"] or 0), int(words["state_dim"] or 0))] = accuracy
    return cells
