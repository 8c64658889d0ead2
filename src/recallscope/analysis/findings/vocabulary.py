"""Large vocabularies: how fast recall falls with m_V, measured, printed and by our law.

Paper: App. A.2 (`app-subsec:large-vocab`), Fig. 11 (`app-fig:large-vocab`), Fig. 12 (`app-fig:large-vocab-curves`).
"""

from __future__ import annotations

import numpy as np

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.compare import compare_law
from recallscope.analysis.findings.finding import Finding, untested
from recallscope.analysis.findings.words import verdict_of
from recallscope.analysis.paper_runs import PaperRuns, Row
from recallscope.analysis.predicted import law_on_cells
from recallscope.analysis.vocabulary_slopes import vocabulary_slopes
from recallscope.sweeps.paper_grids import VOCABULARIES
from recallscope.theory.law import find_law


def vocabulary_findings(runs: PaperRuns) -> list[Finding]:
    """Slopes per length, beside those of the laws on the same cells; then accuracies themselves."""
    rows = runs.rows(VOCABULARIES)
    slopes = vocabulary_slopes(rows) if rows else []
    slopes = [line for line in slopes if line.slope == line.slope]
    question, paper = "Slope of Phi^-1(accuracy) against m_V, per length", "1.18 to 1.56 measured, 1 by the law"
    scale = ("fig-11", "Accuracy over V and L", "grid at D = 150, N = 75 (V to 50000, L to 4000)")
    if not slopes:
        why = "no length has two vocabularies done"
        return [untested("fig-12", question, paper, why, "fig-12"), untested(*scale, why, "fig-11")]
    by_law = {line.length: line.slope for line in vocabulary_slopes(as_predicted(rows, "trained-sharing"))}
    said = ", ".join(
        f"{line.slope:.2f} +- {line.slope_error:.2f} at L = {line.length} (trained-sharing {by_law[line.length]:.2f})"
        for line in slopes
    )
    gaps = [abs(line.slope - by_law[line.length]) for line in slopes]
    grid = AccuracyGrid.from_runs(rows, ("vocab_size", "num_facts"))
    printed, typical, sharing = (
        compare_law(grid, find_law(name)) for name in ("unified", "unified-mv", "trained-sharing")
    )
    cut = runs.parts[VOCABULARIES].cut or "as published"
    return [
        Finding(
            "fig-12", question, paper, said,
            "does not hold" if min(abs(line.slope - 1) for line in slopes) > 0.1 else "holds approximately",
            f"{len(rows)} runs; {cut}; +- is the standard error of the line. The verdict is on the law's slope 1; "
            f"trained-sharing predicts the slopes to {np.mean(gaps):.2f} on average without a fit",
            "fig-12",
        ),
        Finding(
            *scale,
            f"printed law off by {printed.mean_error:.3f} on average (max {printed.max_error:.2f}), m_V "
            f"{typical.mean_error:.3f} ({typical.max_error:.2f}), trained-sharing {sharing.mean_error:.3f} "
            f"({sharing.max_error:.2f})",
            verdict_of(printed.mean_error, 0.02, 0.06),
            f"{len(rows)} runs; {cut}. The paper's own sizes need a GPU",
            "fig-11",
        ),
    ]  # fmt: skip


def as_predicted(rows: list[Row], law: str) -> list[Row]:
    """The same cells with a law's prediction in the place of the measurement."""
    predicted = law_on_cells(find_law(law), rows)
    return [row | {"test_accuracy": float(p)} for row, p in zip(rows, predicted, strict=True)]
