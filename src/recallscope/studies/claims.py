"""The checklist of the project: what the paper states, where we compute it, which test holds it to be true; findings.

One row per theorem, lemma, remark, algorithm, figure and table, and for the equations and sections that code
cites. A theorem and its restatement in the appendix are one row. Theorems, lemmas and remarks share one
counter per section; equations run through the paper: the first eighty are cited by number, later ones by
LaTeX label. Every citation in src/ must be found here; a test checks. The rows are in `claims.toml`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, NamedTuple

Kind = Literal["theorem", "lemma", "remark", "algorithm", "figure", "table", "equation", "section"]
Status = Literal["exact", "approximate", "measured", "departs", "todo"]


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing the paper says, and what became of it here.

    status: exact (computed as stated, and true as stated), approximate (the paper's approximation, as it
    stands), measured (an experiment), departs (the print cannot be followed; note says what is wrong and what
    is right), todo (no code yet; the note may already warn of the print).
    """

    key: str
    number: str
    labels: tuple[str, ...]
    kind: Kind
    sentence: str
    functions: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    status: Status = "todo"
    note: str = ""
    also: tuple[str, ...] = ()  # further numbers of the same thing: its restatement, its equations, its section

    @property
    def numbers(self) -> tuple[str, ...]:
        """Every number under which the row may be cited."""
        return (self.number, *self.also)


def claim(key: str) -> Claim:
    """The row with that key, such as "thm-4.2"."""
    if key not in _BY_KEY:
        near = difflib.get_close_matches(key, _BY_KEY, n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(near)}?" if near else "CLAIMS lists them all."
        raise KeyError(f"{key!r} is none of the {len(CLAIMS)} claims. {hint}")
    return _BY_KEY[key]


def all_labels() -> frozenset[str]:
    """Every LaTeX label that may be cited."""
    return frozenset(label for row in CLAIMS for label in row.labels)


def all_numbers() -> frozenset[str]:
    """Every number that may be cited, such as "Thm 4.2" or "App. E.1"."""
    return frozenset(number for row in CLAIMS for number in row.numbers)


def _rows() -> tuple[Claim, ...]:
    table: dict[str, dict[str, Any]] = tomllib.loads((files(__package__) / "claims.toml").read_text(encoding="utf-8"))
    for fields in table.values():
        fields |= {name: tuple(fields.get(name, ())) for name in ("labels", "functions", "tests", "also")}
    return tuple(Claim(key=key, **fields) for key, fields in table.items())


CLAIMS: tuple[Claim, ...] = _rows()
_BY_KEY = {row.key: row for row in CLAIMS}

# Findings: a question about one claim, or of our own; the paper's number, ours, the verdict with its rule, the evidence

Verdict = Literal["holds", "holds approximately", "does not hold", "not tested"]
NOT: Verdict = "does not hold"
NOTHING = "-"  # what was measured for a finding that could not be tested


class Ruling(NamedTuple):
    """A verdict, and the rule with its limits by which it was reached: one is never shown without the other."""

    verdict: Verdict
    rule: str


@dataclass(frozen=True)
class Finding:
    """One row of the report. Texts are made from measured numbers where the finding is made, never typed.

    One statement of the paper is one finding, however many grids it was tested on: a disagreement counts once.
    """

    claim: str | None  # key of claims.toml, such as "fig-10"; None for a question of our own
    question: str  # what is asked, one line
    paper: str  # what the paper says, with its number; empty for a question of our own
    ours: str  # what we measured, with its error
    verdict: Verdict
    rule: str  # the limits behind the verdict; empty if it was not tested
    evidence: str  # runs, cells, how the number and its error were made
    figure: str = ""  # of `recallscope figures`, if one shows it
    missing: int = 0  # runs this scale asks for that the store lacks
    table: tuple[tuple[str, ...], ...] = ()  # the numbers in full, headings first

    @property
    def tested(self) -> bool:
        """Whether it was measured at all. A measurement that decides nothing has the verdict "not tested" as well."""
        return self.ours != NOTHING

    @property
    def number(self) -> str:
        """The number of its claim, such as Fig. 10; "ours" without one."""
        return claim(self.claim).number if self.claim else "ours"


@dataclass(frozen=True)
class Check:
    """What is asked of a claim, and what the paper says; `answer` or `untested` makes the finding."""

    claim: str | None
    question: str
    paper: str
    figure: str = ""

    def answer(
        self, ours: str, ruling: Ruling, evidence: str, missing: int = 0, table: tuple[tuple[str, ...], ...] = ()
    ) -> Finding:
        """The finding with what was measured."""
        said = self.claim, self.question, self.paper, ours
        return Finding(*said, *ruling, evidence, self.figure, missing, table)

    def untested(self, why: str, missing: int = 0) -> Finding:
        """A finding that cannot be made, and why."""
        return self.answer(NOTHING, Ruling("not tested", ""), why, missing)


def own_check(question: str, figure: str = "") -> Check:
    """A question of our own: no claim of the paper is behind it."""
    return Check(None, question, "", figure)


def by_distance(what: str, distance: float, holds: float, roughly: float) -> Ruling:
    """By how far we are off: within `holds`, within `roughly`, or beyond."""
    limits = f"{what}: holds up to {holds:g}, approximately up to {roughly:g}"
    return Ruling("holds" if distance <= holds else "holds approximately" if distance <= roughly else NOT, limits)


def by_conditions(holds: bool, roughly: bool, rule: str) -> Ruling:
    """By two conditions, which the rule puts into words."""
    return Ruling("holds" if holds else "holds approximately" if roughly else NOT, rule)


def within(value: float, ends: tuple[float, float]) -> bool:
    """Whether a published value lies in our interval."""
    return ends[0] <= value <= ends[1]


def best_rates(
    check: Check,
    losses: Mapping[str, Mapping[float, float]],
    trained_at: Mapping[str, float],
    tried: int,
    basis: str,
    missing: int,
) -> Finding:
    """Whether every variant is trained at the learning rate of least loss in its search.

    `losses` by variant and rate; a search is complete with so many rates `tried`.
    """
    done = {label: found for label, found in losses.items() if len(found) == tried}
    if not done:
        return check.untested("no search is complete yet", missing)
    best = {label: min(found, key=found.__getitem__) for label, found in done.items()}
    wrong = [label for label, rate in best.items() if rate != trained_at[label]]
    text = "; ".join(
        f"{label} is trained at {trained_at[label]:g}, and the search says {best[label]:g} (losses "
        + ", ".join(f"{loss:.3f} at {rate:g}" for rate, loss in done[label].items())
        + ")"
        for label in wrong
    )
    rule = "holds: every rate is the one of least loss in its search"
    evidence = f"{len(done)} of {len(trained_at)} searches complete, {basis}"
    return check.answer(text or f"yes, all {len(done)}", by_conditions(not wrong, False, rule), evidence, missing)
