"""The luck of optimisation: how far seeds of the full model agree, and how many converge.

Paper: App. K.5 (`app-subsec:seeds`), Fig. 19 (`app-fig:seed-grids`), Fig. 20 (`app-fig:seed-reliability`).
"""

from __future__ import annotations

import numpy as np

from recallscope.analysis.accuracy_grid import CONVERGED, group_cells
from recallscope.analysis.findings.finding import Finding, untested
from recallscope.analysis.findings.words import verdict_of
from recallscope.analysis.paper_runs import PaperRuns
from recallscope.sweeps.paper_grids import FULL_EXAMPLE


def seed_findings(runs: PaperRuns) -> list[Finding]:
    """Spread over seeds, and the share that converges."""
    rows = runs.rows(FULL_EXAMPLE)
    groups = group_cells(rows, ("embed_dim", "state_dim")) if rows else {}
    seeds = [np.array([row["test_accuracy"] for row in members]) for members in groups.values() if len(members) > 1]
    first = ("fig-19", "Seeds of the full model agree but for failures", "the boundary is the same for all seeds")
    second = ("fig-20", "Most seeds converge where a cell can learn", "most do; failures are isolated")
    if not seeds:
        why = "no cell has two seeds yet"
        return [untested(*first, why, "fig-19"), untested(*second, why, "fig-20")]
    spread = np.array([np.ptp(values) for values in seeds])
    able = [values for values in seeds if values.max() >= CONVERGED]
    converged = sum(int((values >= CONVERGED).sum()) for values in able)
    total = sum(len(values) for values in able)
    number = max(len(values) for values in seeds)
    return [
        Finding(
            *first, f"best less worst seed {np.mean(spread):.3f} on average, {spread.max():.3f} at most",
            verdict_of(float(np.median(spread)), 0.03, 0.1),
            f"{len(seeds)} cells with {number} seeds each; verdict by the median, {np.median(spread):.3f}", "fig-19",
        ),
        Finding(
            *second, f"{converged} of {total} seeds ({converged / max(total, 1):.0%}) reach {CONVERGED}",
            verdict_of(1 - converged / max(total, 1), 0.2, 0.5),
            f"cells whose best seed reaches {CONVERGED}", "fig-20",
        ),
    ]  # fmt: skip
