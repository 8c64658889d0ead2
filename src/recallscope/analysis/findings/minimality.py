"""What a recall circuit cannot do without.

Paper: App. I.1 (`app:mqar_ablation_impl_details`), Tab. 8 (`fig:mqar_ablation`).
"""

from __future__ import annotations

from recallscope.analysis.findings.finding import Finding, untested
from recallscope.analysis.findings.words import verdict_of
from recallscope.analysis.ladder import LADDER, ladder
from recallscope.analysis.paper_runs import PaperRuns
from recallscope.sweeps.paper_grids import LADDER as PART


def ladder_findings(runs: PaperRuns) -> list[Finding]:
    """One finding per rung."""
    rows = runs.rows(PART)
    rungs = {rung.name: rung for rung in ladder(rows)}
    guess = 1 / rows[0]["num_facts"] if rows else 0.0
    found = []
    for name, (says, published) in LADDER.items():
        question, paper = f"Rung {name}: {says}", f"{published:.2f} +- .00"
        if name not in rungs:
            found.append(untested("tab-8", question, paper, "no runs", "fig-17"))
            continue
        rung = rungs[name]
        also = f"; 1/N_f = {guess:.4f}" if name == "E" else ""
        found.append(
            Finding(
                "tab-8", question, paper,
                f"{rung.mean:.4f} +- {rung.spread:.4f}{also}",
                verdict_of(abs(rung.mean - published), 0.01, 0.03),
                f"mean and standard deviation of {len(rung.accuracies)} seeds",
                "fig-17",
            )
        )  # fmt: skip
    return found
