"""What a report says and in which order, before it is a page."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import get_args

from recallscope import __version__
from recallscope.analysis.findings.finding import Finding, Verdict
from recallscope.analysis.law_table import LawTable
from recallscope.paper import CLAIMS, Claim, claim
from recallscope.report.facts import PartFacts, RunFacts
from recallscope.sweeps.paper_grids import EXPERIMENTS

TITLE = "On the Recall Scaling Laws in Mamba: what holds when it is run again"
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
SHAPES: dict[Verdict, str] = {"holds": "●", "holds approximately": "◐", "does not hold": "✕", "not tested": "○"}
FURTHER = "further"
STATUSES = {
    "exact": "computed as stated, and true as stated",
    "approximate": "the paper's approximation, as it stands",
    "measured": "an experiment",
    "departs": "the print cannot be followed",
    "todo": "no code yet",
}


@dataclass(frozen=True)
class Section:
    """One experiment: what it asks, what was found, the pictures that show it, the runs behind it."""

    name: str
    says: str
    findings: tuple[Finding, ...]
    figures: tuple[str, ...]
    parts: tuple[PartFacts, ...]

    def by_claim(self) -> Iterator[tuple[Claim, list[Finding]]]:
        """Findings under the claim they are about, claims in order of first mention."""
        for key in dict.fromkeys(finding.claim for finding in self.findings):
            yield claim(key), [finding for finding in self.findings if finding.claim == key]


@dataclass(frozen=True)
class Report:
    """All that a page is made of. The same report gives the same bytes."""

    by_experiment: Mapping[str, Sequence[Finding]]
    laws: LawTable
    facts: RunFacts
    figures: Mapping[str, bytes] = field(default_factory=dict)  # PNG or SVG, by name
    captions: Mapping[str, str] = field(default_factory=dict)
    homes: Mapping[str, str] = field(default_factory=dict)  # the experiment of a figure, where it is known
    not_drawn: Mapping[str, str] = field(default_factory=dict)  # figures that could not be, and why

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, in order of their sections."""
        return tuple(finding for section in self.sections for finding in section.findings)

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """One per experiment of the paper, in its order; figures that belong to none come last."""
        says = {name: experiment.says for name, experiment in EXPERIMENTS.items()}
        says |= {name: "further findings" for name in self.by_experiment if name not in says}
        homes = {name: self.homes.get(name) or home for name, home in self._named_homes().items()}
        if FURTHER in homes.values():
            says |= {FURTHER: "figures that belong to no single experiment"}
        return tuple(
            Section(
                name,
                text,
                tuple(self.by_experiment.get(name, ())),
                tuple(figure for figure, home in homes.items() if home == name),
                self.facts.parts.get(name, ()),
            )
            for name, text in says.items()
        )

    def _named_homes(self) -> dict[str, str]:
        """Every figure with its experiment: the one whose claim it is named after, else whose finding names it."""
        by_claim = {key: name for name, experiment in reversed(EXPERIMENTS.items()) for key in experiment.claims}
        named: dict[str, str] = {}
        for name, rows in self.by_experiment.items():
            for finding in rows:
                named.setdefault(finding.figure, name)
        order = sorted(self.figures, key=_counting_order)
        return {figure: by_claim.get(figure) or named.get(figure) or FURTHER for figure in order}

    def caption(self, figure: str) -> str:
        """What stands under a picture; its name if nobody gave it a caption."""
        return self.captions.get(figure) or figure

    def absent(self, section: Section) -> list[str]:
        """Figures of a section that the report lacks, by the reason why."""
        wanted = {finding.figure for finding in section.findings if finding.figure}
        wanted |= {name for name in self.not_drawn if self.homes.get(name) == section.name}
        by_reason: dict[str, list[str]] = {}
        for name in sorted(wanted - set(self.figures), key=_counting_order):
            by_reason.setdefault(self.not_drawn.get(name, "there is no figure of that name"), []).append(name)
        return [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def verdict_counts(findings: tuple[Finding, ...]) -> dict[Verdict, int]:
    """How many findings have each verdict, those that nobody has included."""
    return {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in VERDICTS}


def summary(report: Report) -> str:
    """The report in one paragraph, made of its own numbers."""
    counts, facts = verdict_counts(report.findings), report.facts
    asked = sum(count for verdict, count in counts.items() if verdict != "not tested")
    total = len(report.findings)
    verdicts = (
        f"Of {total} {_plural('question', total)} put to the paper's statements {asked} could be answered at scale "
        f"{facts.scale}: {counts['holds']} {'holds' if counts['holds'] == 1 else 'hold'}, "
        f"{counts['holds approximately']} {'holds' if counts['holds approximately'] == 1 else 'hold'} approximately, "
        f"{counts['does not hold']} {'does' if counts['does not hold'] == 1 else 'do'} not hold; "
        f"{counts['not tested']} {'was' if counts['not tested'] == 1 else 'were'} not tested."
    )
    runs = f"Behind it are {facts.runs} of the {facts.asked} runs this scale asks for"
    runs += f", {duration(facts.core_seconds)} of core time in all" if facts.runs else ""
    made = ", ".join(f"{name} {' and '.join(values)}" for name, values in facts.environment)
    unfinished = " Verdicts on grids that lack runs may change." if facts.runs < facts.asked else ""
    return f"{verdicts} {runs}{f' ({made})' if made else ''}.{unfinished} Written by recallscope {__version__}."


def duration(seconds: float) -> str:
    """A time one can picture."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def departures() -> tuple[Claim, ...]:
    """Statements of the paper that cannot be followed as printed."""
    return tuple(row for row in CLAIMS if row.status == "departs")


def runs_missing(finding: Finding) -> str:
    """How many runs a finding still waits for; nothing if none."""
    return f"{finding.missing} {_plural('run', finding.missing)} of this scale missing" if finding.missing else ""


def _plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"


def _counting_order(name: str) -> list[tuple[int, str]]:
    """fig-2 before fig-10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", name)]
