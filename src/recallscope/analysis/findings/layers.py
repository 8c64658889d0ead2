"""Depth: is recall a function of Lambda N alone?

Paper: Thm 4.6 (`thm:multi-layer-recall-scaling-laws`), Sec. 5.3 (`subsec:multi-layer-experiments`), Fig. 10
(`app-fig:multi-layer-scaling-laws`).
"""

from __future__ import annotations

import numpy as np

from recallscope.analysis.best_cells import best_cells, cell_words
from recallscope.analysis.collapse import fit_collapse
from recallscope.analysis.findings.finding import Finding, untested
from recallscope.analysis.findings.words import interval, verdict_of
from recallscope.analysis.paper_runs import PaperRuns, Row

ANCHOR = ((12, 1), (6, 2), (4, 3), (3, 4))  # (N, Lambda) where the paper reads about .38
PUBLISHED = 0.38


def layer_findings(runs: PaperRuns) -> list[Finding]:
    """The four cells the text names, equal Lambda N, and the collapse with N_eff."""
    return [
        *_named_cells(runs),
        *_equal_products(runs, "layers MQAR"),
        *_equal_products(runs, "layers AR"),
    ]


def best_by_cell(rows: list[Row]) -> dict[tuple[int, int], float]:
    """(N, Lambda) to the best accuracy of its seeds."""
    return {(cell["state_dim"], cell["num_layers"]): cell["test_accuracy"] for cell in best_cells(rows)}


def _named_cells(runs: PaperRuns) -> list[Finding]:
    question = "Equal Lambda N = 12: (N, Lambda) = (12, 1), (6, 2), (4, 3), (3, 4)"
    paper = f"about {PUBLISHED} at all four"
    cells = best_by_cell(runs.rows("layers MQAR"))
    done = {cell: cells[cell] for cell in ANCHOR if cell in cells}
    if len(done) < 2:
        return [untested("fig-10", question, paper, f"{len(done)} of the four cells done", "fig-10")]
    values = np.array(list(done.values()))
    said = ", ".join(f"{accuracy:.3f} at {cell}" for cell, accuracy in done.items())
    return [
        Finding(
            "fig-10", question, paper,
            f"{said}; spread {np.ptp(values):.3f}",
            verdict_of(max(np.ptp(values), abs(values.mean() - PUBLISHED)), 0.03, 0.08),
            f"{len(done)} of 4 cells, V = {_shared(runs, 'vocab_size')}, N_f = {_shared(runs, 'num_facts')}; "
            f"{runs.parts['layers MQAR'].cut or 'as published'}",
            "fig-10",
        )
    ]  # fmt: skip


def _shared(runs: PaperRuns, word: str) -> object:
    return runs.rows("layers MQAR")[0].get(word)


def _equal_products(runs: PaperRuns, label: str) -> list[Finding]:
    question, paper = f"Recall depends on Lambda N alone, {label}", "yes: the curves of all depths coincide"
    rows = runs.rows(label)
    cells = best_by_cell(rows) if rows else {}
    groups: dict[int, list[tuple[tuple[int, int], float]]] = {}
    for cell, accuracy in cells.items():
        groups.setdefault(cell[0] * cell[1], []).append((cell, accuracy))
    shared = {product: members for product, members in groups.items() if len(members) > 1}
    if not shared:
        return [untested("sec-5.3", question, paper, "no two cells with equal Lambda N done", "fig-10")]
    gaps = [  # deeper minus shallower
        deep[1] - shallow[1]
        for members in shared.values()
        for deep in members
        for shallow in members
        if deep[0][1] > shallow[0][1]
    ]
    spread = float(np.mean(np.abs(gaps)))
    fitted = ""
    if len(cells) >= 4:
        fit = fit_collapse(rows, np.random.default_rng(0), bootstrap=200, axes=cell_words(rows))
        fitted = (
            f"; one curve in N_eff = Lambda N with a = {fit.a:.2f} {interval(*fit.a_interval)}, b = {fit.b:.2f}, "
            f"spread {fit.mean_error:.3f}"
        )
    return [
        Finding(
            "sec-5.3", question, paper,
            f"at equal Lambda N cells differ by {spread:.3f} on average, {np.max(np.abs(gaps)):.3f} at most; deeper "
            f"minus shallower {np.mean(gaps):+.3f}{fitted}",
            verdict_of(spread, 0.03, 0.08),
            f"{len(cells)} cells, {len(rows)} runs, {len(gaps)} pairs with equal Lambda N; "
            f"{runs.parts[label].cut or 'as published'}",
            "fig-10",
        )
    ]  # fmt: skip
