"""Numbers as findings say them, and verdicts from measured distances."""

from __future__ import annotations

from recallscope.analysis.findings.finding import Verdict
from recallscope.analysis.paper_runs import PaperRuns, Row
from recallscope.sweeps.paper_grids import EXAMPLE, FULL_EXAMPLE


def interval(low: float, high: float, digits: int = 2) -> str:
    """[low, high]."""
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def verdict_of(distance: float, holds: float, roughly: float) -> Verdict:
    """By how far we are off: within `holds`, within `roughly`, or beyond."""
    if distance <= holds:
        return "holds"
    return "holds approximately" if distance <= roughly else "does not hold"


def inside(value: float, ends: tuple[float, float]) -> bool:
    """Whether a published value lies in our interval."""
    return ends[0] <= value <= ends[1]


def full_and_linear(runs: PaperRuns) -> tuple[list[Row], list[Row]]:
    """Runs of the full and the linear model on the authors' small example; of the full one those on the same task."""
    linear = runs.rows(EXAMPLE)
    tasks = {(row["vocab_size"], row["num_facts"]) for row in linear}
    return [row for row in runs.rows(FULL_EXAMPLE) if (row["vocab_size"], row["num_facts"]) in tasks], linear
