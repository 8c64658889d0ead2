"""A finding: one claim of the paper, its number, ours, and the verdict, with the evidence in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["holds", "holds approximately", "does not hold", "not tested"]


@dataclass(frozen=True)
class Finding:
    """One row of the report. Texts are made from measured numbers where the finding is made, never typed."""

    claim: str  # key of paper.py, such as "fig-10"
    question: str  # what is asked, one line
    paper: str  # what the paper says, with its number
    ours: str  # what we measured, with its error
    verdict: Verdict
    evidence: str  # runs, cells, how the number and its error were made
    figure: str = ""  # of `recallscope draw`, if one shows it
    missing: int = 0  # runs this scale asks for that the store lacks


def untested(claim: str, question: str, paper: str, why: str, figure: str = "", missing: int = 0) -> Finding:
    """A finding that cannot be made, and why."""
    return Finding(claim, question, paper, "-", "not tested", why, figure, missing)
