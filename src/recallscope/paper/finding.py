"""Findings: a question put to one claim of the paper, its number, ours, and the verdict, with the evidence as text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "holds approximately", "does not hold", "not tested"]


@dataclass(frozen=True)
class Finding:
    """One row of the report. Texts are made from measured numbers where the finding is made, never typed."""

    claim: str  # key of claims.py, such as "fig-10"
    question: str  # what is asked, one line
    paper: str  # what the paper says, with its number
    ours: str  # what we measured, with its error
    verdict: Verdict
    evidence: str  # runs, cells, how the number and its error were made
    figure: str = ""  # of `recallscope draw`, if one shows it
    missing: int = 0  # runs this scale asks for that the store lacks


@dataclass(frozen=True)
class Check:
    """What is asked of a claim, and what the paper says; `answer` or `untested` makes the finding."""

    claim: str
    question: str
    paper: str
    figure: str = ""

    def answer(self, ours: str, verdict: Verdict, evidence: str, missing: int = 0) -> Finding:
        """The finding with what was measured."""
        return Finding(self.claim, self.question, self.paper, ours, verdict, evidence, self.figure, missing)

    def untested(self, why: str, missing: int = 0) -> Finding:
        """A finding that cannot be made, and why."""
        return self.answer("-", "not tested", why, missing)


def verdict_of(distance: float, holds: float, roughly: float) -> Verdict:
    """The verdict by how far we are off: within `holds`, within `roughly`, or beyond."""
    if distance <= holds:
        return "holds"
    return "holds approximately" if distance <= roughly else "does not hold"


def interval(low: float, high: float, digits: int = 2) -> str:
    """[low, high] as text."""
    return f"[{low:.{digits}f}, {high:.{digits}f}]"


def within(value: float, ends: tuple[float, float]) -> bool:
    """Whether a published value lies in our interval."""
    return ends[0] <= value <= ends[1]
