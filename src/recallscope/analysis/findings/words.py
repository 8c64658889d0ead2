"""Numbers as findings say them, and verdicts from measured distances."""

from __future__ import annotations

from recallscope.analysis.findings.finding import Verdict


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
