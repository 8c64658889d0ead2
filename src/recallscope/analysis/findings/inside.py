"""What was found inside trained models.

Paper: Sec. 3.2 (`subsec:mech-interp`), Fig. 3 (`fig:reversing-hidden`), Fig. 13-16 (`app-fig:reversing-hidden`,
`fig:reversing-attn`, `fig:reversing-conv`, `app-fig:reversing-operators`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from recallscope.analysis.findings.finding import Finding, untested
from recallscope.analysis.findings.words import verdict_of
from recallscope.analysis.paper_runs import INSIDE_SEQUENCES, Inside, PaperRuns

Read = Callable[[dict[str, Any]], float]

# claim, question, what the paper says, the score that answers it and its name; the ideal of every score is 1
SCORES: tuple[tuple[str, str, str, str, Read], ...] = (
    ("fig-13", "The state decodes to the table of facts, H'' about H", "yes (by eye)",
     "facts decoded rightly", lambda s: float(s["decoded_hit_rate"])),
    ("fig-3", "In H'' facts stand out from all other entries", "yes (by eye)",
     "area under the ROC curve", lambda s: float(s["auc"])),
    ("fig-14", "Attention goes from a query to its fact", "alpha' about alpha (by eye)",
     "queries whose largest weight is on their fact", lambda s: float(s["attention"]["hit_rate"])),
    ("fig-15", "The convolution copies values", "x_t G_vv xi_tau about delta (by eye)",
     "tokens whose largest entry is the diagonal", lambda s: float(s["copy"]["hit_rate"])),
    ("fig-15", "The convolution shifts keys", "xi_t G_kq^T xi_tau about delta, one off (by eye)",
     "tokens whose largest entry is one off the diagonal", lambda s: float(s["shift"]["hit_rate"])),
    ("fig-16", "G_vv has its predicted block only", "all other entries about 0 (by eye)",
     "share of energy in the block", lambda s: float(s["g_vv_block_mass"])),
    ("fig-16", "G_kq has its predicted block only", "all other entries about 0 (by eye)",
     "share of energy in the block", lambda s: float(s["g_kq_block_mass"])),
    ("app-d.3", "A fact can be overwritten in the state alone", "follows from the hash table; not tried in the paper",
     "edits that change the answer as meant", lambda s: float(s["overwrite_success"])),
)  # fmt: skip


def inside_findings(runs: PaperRuns) -> list[Finding]:
    """One finding per score, over all models that were looked into."""
    models = runs.inside()
    return [_finding(models, *score) for score in SCORES]


def _finding(models: list[Inside], claim: str, question: str, paper: str, name: str, read: Read) -> Finding:
    figure = claim if claim.startswith("fig") else "fig-3"
    if not models:
        return untested(claim, question, paper, "no model has been looked into yet", figure)
    values = {
        f"({model.record.spec.model.embed_dim}, {model.record.spec.model.state_dim})": read(model.scores)
        for model in models
    }
    said = ", ".join(f"{value:.4f} at (D, N) = {cell}" for cell, value in values.items())
    return Finding(
        claim, question, paper, f"{name}: {said}", verdict_of(1 - min(values.values()), 0.01, 0.1),
        f"{len(models)} trained models, {INSIDE_SEQUENCES} sequences each", figure,
    )  # fmt: skip
