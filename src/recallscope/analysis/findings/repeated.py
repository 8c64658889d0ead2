"""Keys written several times: one layer guesses, depth overwrites.

Paper: App. I.2 (`app-subsec:repeated-keys-queries`), Fig. 18 (`fig:mqar-keys`).
"""

from __future__ import annotations

import numpy as np

from recallscope.analysis.best_cells import best_cells
from recallscope.analysis.findings.finding import Finding, untested
from recallscope.analysis.findings.words import verdict_of
from recallscope.analysis.paper_runs import PaperRuns
from recallscope.sweeps.paper_grids import REPEATS


def repeated_findings(runs: PaperRuns) -> list[Finding]:
    """One layer against 1/N_k, then deeper models."""
    best = {(c["num_layers"], c["key_repeats"]): c["test_accuracy"] for c in best_cells(runs.rows(REPEATS))}
    return [_one_layer(best), _deeper(best)]


def _one_layer(best: dict[tuple[int, int], float]) -> Finding:
    question, paper = "One layer guesses among the N_k values", "about 1/N_k"
    single = {N_k: accuracy for (layers, N_k), accuracy in best.items() if layers == 1}
    repeated = {N_k: accuracy for N_k, accuracy in single.items() if N_k > 1}
    if not repeated:
        return untested("fig-18", question, paper, "no one-layer run with repeated keys yet", "fig-18")
    said = ", ".join(f"{accuracy:.3f} at N_k = {N_k}" for N_k, accuracy in sorted(single.items()))
    excess = float(np.mean([accuracy - 1 / N_k for N_k, accuracy in repeated.items()]))
    worst = max(abs(accuracy - 1 / N_k) for N_k, accuracy in repeated.items())
    return Finding(
        "fig-18", question, paper, f"{said}; above 1/N_k by {excess:+.3f} on average", verdict_of(worst, 0.03, 0.1),
        f"{len(single)} cells, best of seeds", "fig-18",
    )  # fmt: skip


def _deeper(best: dict[tuple[int, int], float]) -> Finding:
    question, paper = "Two layers or more recover the last value", "accuracy recovers with depth"
    deep = {cell: accuracy for cell, accuracy in best.items() if cell[0] > 1 and cell[1] > 1}
    if not deep:
        return untested("fig-18", question, paper, "no deeper run with repeated keys yet", "fig-18")
    said = ", ".join(f"{accuracy:.3f} at (Lambda, N_k) = {cell}" for cell, accuracy in sorted(deep.items()))
    gains = [accuracy - 1 / N_k for (_, N_k), accuracy in deep.items()]
    high = min(deep.values()) >= 0.9
    return Finding(
        "fig-18", question, paper, said,
        "holds" if high else "holds approximately" if min(gains) > 0.2 else "does not hold",
        f"{len(deep)} cells; holds: all above .9", "fig-18",
    )  # fmt: skip
