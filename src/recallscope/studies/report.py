"""The report: everything a store says about the paper. One content model, and a template per format.

`make_report` reads, finds and draws; `html_page`, `markdown_page` and `report_data` show the same `Report`.
The pages need Jinja2 (`pip install 'recallscope[figures]'`).
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from importlib.resources import files
from math import isfinite
from pathlib import Path
from shlex import quote as shell_quote
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import quote

from recallscope import __version__
from recallscope.records import RunRecord
from recallscope.studies.claims import CLAIMS, Claim, Finding, Verdict, claim, own_check
from recallscope.studies.drawing import do_jobs, figure_job
from recallscope.studies.experiment import (
    DesignedPart,
    Part,
    Scale,
    costs_table,
    counting_order,
    experiments,
    find_experiment,
    paper_figures,
)
from recallscope.studies.law_table import LawTable, law_table
from recallscope.studies.markdown import MEANT_IN_LINK, Table, findings_of, paragraph, plain, table
from recallscope.studies.other_groups import gla_settings_table, gla_table, routed_table
from recallscope.studies.own.architectures import published_table, recall_table, variants_table
from recallscope.studies.own.components import components_table
from recallscope.studies.own.correlated_keys import correlated_table
from recallscope.studies.own.large_sizes import large_table
from recallscope.studies.paper.dn_grid import full_table, linear_table
from recallscope.studies.paper.minimality import ablations_table
from recallscope.studies.paper_runs import PaperRuns
from recallscope.studies.stored_runs import laws_table

if TYPE_CHECKING:
    from jinja2 import Environment

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


def _blind_table(runs: PaperRuns, page: str) -> Iterable[str]:
    """Laws against runs that they were not made with: trained after the law, at larger sizes, or for longer."""
    found = (one for name in ("fresh-cells", "large-sizes", "longer") for one in find_experiment(name).find(runs))
    rows = (map(plain, (one.question, one.ours, one.evidence)) for one in found)
    return table(["question", "mean absolute error", "basis"], rows)


CHAPTERS = ("ARCHITECTURE_COMPARISON.md", "COMPONENTS.md", "TABLES.md")  # texts are in `chapters`, tables below
# lines between <!-- NAME --> and <!-- /NAME --> in the chapters, and in any page beside the report
TABLES: Mapping[str, Table] = {
    "laws": laws_table,
    "blind": _blind_table,
    "costs": costs_table,
    "correlated-keys": correlated_table,
    "routed-memories": routed_table,
    "gla": gla_table,
    "gla-settings": gla_settings_table,
    "findings-architectures": findings_of("architectures"),
    "architectures-recall": recall_table,
    "architectures-variants": variants_table,
    "architectures-published": published_table,
    "findings-components": findings_of("components"),
    "components": components_table,
    "findings-large-sizes": findings_of("large-sizes"),
    "large-sizes": large_table,
    "grid-linear": linear_table,
    "grid-full": full_table,
    "ablations": ablations_table,
}
FURTHER = "further"
OWN_QUESTIONS = "own-questions"
_SMALL, _CAPTION = ".small", ".caption"  # the smaller of PNG and SVG; what is written under it


@dataclass(frozen=True)
class Picture:
    """A figure of the report: its bytes, PNG or SVG, or why it could not be drawn."""

    name: str
    caption: str
    experiment: str = ""  # empty if it belongs to none
    data: bytes = b""
    why_not: str = ""

    @property
    def suffix(self) -> str:
        """.png or .svg, by looking at the bytes."""
        if self.data.startswith(b"\x89PNG\r\n\x1a\n"):
            return ".png"
        if b"<svg" in self.data[:2000]:
            return ".svg"
        raise ValueError(
            f"{self.name}: {len(self.data)} bytes are neither PNG nor SVG (they start with {self.data[:8]!r})."
        )

    @property
    def file_name(self) -> str:
        """Its name on disk."""
        return f"{self.name}{self.suffix}"

    @property
    def address(self) -> str:
        """The picture as a data: address. An SVG in an <img> runs no script and loads nothing."""
        kind = {".png": "image/png", ".svg": "image/svg+xml"}[self.suffix]
        return f"data:{kind};base64,{b64encode(self.data).decode('ascii')}"


@dataclass(frozen=True)
class PartFacts:
    """One part of an experiment: how much of it is there, and what is less than the paper's."""

    label: str
    done: int
    asked: int
    cut: str = ""

    @property
    def state(self) -> str:
        """Such as 14 of 14 runs."""
        return f"{self.done} of {_count(self.asked, 'run')}"


@dataclass(frozen=True)
class RunFacts:
    """The runs of one scale that a store holds."""

    scale: Scale
    runs: int
    asked: int
    core_seconds: float
    environment: Mapping[str, tuple[str, ...]]  # what the records say of themselves: name, all its values
    parts: Mapping[str, tuple[PartFacts, ...]]  # by experiment
    store: str  # as the commands of the page are to spell it


@dataclass(frozen=True)
class Section:
    """One experiment: what it asks, what was found, the pictures that show it, the runs behind it."""

    name: str
    title: str
    findings: tuple[Finding, ...]
    pictures: tuple[Picture, ...]
    not_drawn: str  # figures that are missing, and why
    parts: tuple[PartFacts, ...]
    own: bool = False  # questions of our own: no claim of the paper is behind its findings

    @property
    def runs(self) -> list[str]:
        """What is behind it: all runs together, parts that are less than the paper's, parts that are not complete."""
        if not self.parts:
            return []
        every = PartFacts("", sum(part.done for part in self.parts), sum(part.asked for part in self.parts))
        by_cut: dict[str, list[str]] = {}
        for part in self.parts:
            if part.cut:
                by_cut.setdefault(part.cut, []).append(part.label)
        return [
            f"{every.state} in {_count(len(self.parts), 'part')}",
            *(f"unlike the paper: {cut} ({', '.join(labels)})" for cut, labels in by_cut.items()),
            *(f"incomplete: {part.label}, {part.state}" for part in self.parts if part.done < part.asked),
        ]

    @property
    def by_claim(self) -> list[tuple[Claim, list[Finding]]]:
        """Findings under the claim they are about, claims in order of first mention; none of our own questions."""
        keys = dict.fromkeys(finding.claim for finding in self.findings if finding.claim)
        return [(claim(key), [finding for finding in self.findings if finding.claim == key]) for key in keys]


@dataclass(frozen=True)
class Report:
    """All that a page shows. The same report gives the same bytes."""

    by_experiment: Mapping[str, Sequence[Finding]]
    laws: LawTable
    facts: RunFacts
    pictures: Sequence[Picture] = ()

    appendix = "REPRODUCTION_APPENDIX.md"
    title = "The reproduction: every finding, run and claim"
    claims = CLAIMS
    departures = tuple(row for row in CLAIMS if row.status == "departs")
    chapters = {  # noqa: RUF012
        "findings": "Findings",
        "beyond": "Beyond the paper",
        "laws": "Laws against measured accuracy",
        "departures": "What does not hold, and what is right instead",
        "claims": "All claims of the paper",
        "rerun": "How to rerun",
    }
    statuses = {  # noqa: RUF012
        "exact": "computed as stated, and true as stated",
        "approximate": "the paper's approximation, as it stands",
        "measured": "an experiment",
        "departs": "the print cannot be followed",
        "todo": "no code yet",
    }
    beyond_caption = (
        "Questions of our own, about which the paper claims nothing: other architectures, what each part of full Mamba "
        "brings, and laws far from the sizes they were made for. What the laws say is on the page of the laws; runs "
        "that are missing are counted"
    )
    law_caption = (
        "Mean (and largest) distance of measured and predicted accuracy, and the mean of measured minus predicted "
        "(bias). Bold: the nearest law of the row, among those on the most of its cells with no constant fitted to them"
    )

    @cached_property
    def sections(self) -> tuple[Section, ...]:
        """One per experiment, in their order; figures that belong to none come last."""
        titles = {one.name: one.title for one in experiments()}
        own = {one.name for one in experiments() if not one.claims}
        titles |= {name: "further findings" for name in self.by_experiment if name not in titles}
        homes = {picture.name: picture.experiment or FURTHER for picture in self.pictures}
        if FURTHER in homes.values():
            titles[FURTHER] = "figures that belong to no single experiment"
        pictures = sorted(self.pictures, key=lambda picture: counting_order(picture.name))
        sections, ours = [], []
        for name, title in titles.items():
            findings = tuple(self.by_experiment.get(name, ()))
            if name not in own:
                ours += [finding for finding in findings if not finding.claim]
                findings = tuple(finding for finding in findings if finding.claim)
            here = [picture for picture in pictures if homes[picture.name] == name]
            missing = {picture.name: picture.why_not for picture in here if not picture.data}
            for finding in findings:
                if finding.figure and finding.figure not in homes:
                    missing[finding.figure] = "there is no figure of that name"
            drawn = tuple(picture for picture in here if picture.data)
            parts = self.facts.parts.get(name, ())
            sections.append(Section(name, title, findings, drawn, _reasons(missing), parts, own=name in own))
        if ours:
            title = "questions of ours about the paper's models"
            sections.append(Section(OWN_QUESTIONS, title, tuple(ours), (), "", (), own=True))
        return tuple(sections)

    @property
    def by_chapter(self) -> dict[str, list[Section]]:
        """The sections of the two chapters that have some: about the paper, and beyond it."""
        return {
            name: [one for one in self.sections if one.own == own]
            for name, own in (("findings", False), ("beyond", True))
        }

    @cached_property
    def findings(self) -> tuple[Finding, ...]:
        """All findings, in order of their sections."""
        return tuple(finding for section in self.sections for finding in section.findings)

    def finding(self, key: str) -> Finding:
        """The first finding about a claim, or whose question begins with these words; untested if there is none."""
        for one in self.findings:
            if one.claim == key or one.question.startswith(key):
                return one
        return own_check(key).untested("no such finding")

    def picture(self, name: str) -> Picture | None:
        """A figure that was drawn."""
        return next((one for one in self.pictures if one.name == name and one.data), None)

    @property
    def cuts(self) -> list[str]:
        """What is less than the paper's, over all parts about the paper."""
        parts = (part for section in self.sections if not section.own for part in section.parts if part.cut)
        return list(dict.fromkeys(part.cut for part in parts))

    @property
    def refuted(self) -> list[Finding]:
        """Findings that speak against the paper."""
        return [finding for finding in self.findings if finding.claim and finding.verdict == "does not hold"]

    @cached_property
    def verdicts(self) -> dict[Verdict, int]:
        """How many findings about the paper's claims have each verdict, those that nobody has included."""
        return _verdicts(finding for finding in self.findings if finding.claim)

    @cached_property
    def own_verdicts(self) -> dict[Verdict, int]:
        """The same for our own questions."""
        return _verdicts(finding for finding in self.findings if not finding.claim)

    @property
    def summary(self) -> str:
        """The report in one paragraph, made of its own numbers."""
        facts = self.facts
        verdicts = _counted(self.verdicts, "about the paper's claims", facts.scale)
        if any(self.own_verdicts.values()):
            verdicts += " " + _counted(self.own_verdicts, "of our own", facts.scale)
        runs = f"Behind it are {facts.runs} of the {facts.asked} runs this scale asks for"
        runs += f", {_duration(facts.core_seconds)} of core time in all" if facts.runs else ""
        made = ", ".join(f"{name} {' and '.join(values)}" for name, values in facts.environment.items())
        unfinished = " Verdicts on grids that lack runs may change." if facts.runs < facts.asked else ""
        return f"{verdicts} {runs}{f' ({made})' if made else ''}.{unfinished} Written by recallscope {__version__}."

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The commands behind the report, with what each does; the runs first, then what is made of them."""
        store, scale = shell_quote(self.facts.store), self.facts.scale
        flags = "" if scale == "small" else f" --scale {scale}"
        return [
            *(
                (f"recallscope reproduce {one.name} --scale {scale} --store {store}", one.title)
                for one in experiments()
            ),
            (f"recallscope store list {store}", "what the store holds"),
            (f"recallscope fit {store}", "a and b of every grid with intervals, and every law against it"),
            (f"recallscope figures {store} all --out figures{flags}", "the figures alone"),
            (f"recallscope report {store} --output report.html{flags}", "this page"),
            ("recallscope claims", "every statement of the paper, with function and test"),
        ]


def _reasons(missing: Mapping[str, str]) -> str:
    """Names of figures that are missing, by the reason why."""
    by_reason: dict[str, list[str]] = {}
    for name in sorted(missing, key=counting_order):
        by_reason.setdefault(missing[name], []).append(name)
    return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())


def _verdicts(findings: Iterable[Finding]) -> dict[Verdict, int]:
    """How many findings have each verdict."""
    counts = Counter(finding.verdict for finding in findings)
    return {verdict: counts[verdict] for verdict in VERDICTS}


def _counted(counts: Mapping[Verdict, int], whose: str, scale: Scale) -> str:
    """The verdicts on some questions as a sentence."""
    holds, roughly, fails, untested = (counts[verdict] for verdict in VERDICTS)
    return (
        f"Of {_count(sum(counts.values()), 'question')} {whose}, {holds + roughly + fails} could be answered at scale "
        f"{scale}: {holds} {'holds' if holds == 1 else 'hold'}, {roughly} {'holds' if roughly == 1 else 'hold'} "
        f"approximately, {fails} {'does' if fails == 1 else 'do'} not hold; {untested} "
        f"{'was' if untested == 1 else 'were'} not tested."
    )


def _count(number: int, noun: str) -> str:
    """1 run, 2 runs."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _duration(seconds: float) -> str:
    """A time one can picture."""
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


# Making a report


def make_report(runs: PaperRuns, *, store: str = "", pictures: bool = False, workers: int = 1) -> Report:
    """Read a store and put all it says into a report; `pictures` asks for its figures."""
    figures = paper_figures() if pictures else {}
    jobs: dict[str, Any] = {f"findings: {one.name}": partial(_find, one.name) for one in experiments()}
    jobs |= {"law table": law_table} | {name: figure_job(figure, "small") for name, figure in figures.items()}
    done = do_jobs(runs, jobs, workers)
    drawn = []
    for name, figure in figures.items():
        found = done[name]
        why_not = found if isinstance(found, str) else ""
        data = b"" if why_not else found[_SMALL]
        caption = "" if why_not else found[_CAPTION].decode()
        drawn.append(Picture(name, caption or figure.title, figure.experiment or "", data, why_not))
    findings = {one.name: done[f"findings: {one.name}"] for one in experiments()}
    return Report(findings, done["law table"], run_facts(runs, store), drawn)


def _find(experiment: str, runs: PaperRuns) -> list[Finding]:
    return find_experiment(experiment).find(runs)


def run_facts(runs: PaperRuns, store: str = "") -> RunFacts:
    """Count what is there. Runs that several experiments share count once."""
    asked = {cell.run for part in runs.parts.values() for cell in part.cells}
    records = {record.run: record for label in runs.parts for record in runs.records(label)}
    environment: dict[str, set[str]] = {}
    for record in records.values():
        for name, value in record.environment.items():
            environment.setdefault(name, set()).add(value)

    def state_of(part: Part | DesignedPart) -> PartFacts:
        if isinstance(part, Part):
            return PartFacts(part.label, len(runs.records(part.label)), len(part.cells), part.cut)
        return PartFacts(part.label, int(not runs.designed(part.label).empty), 1)

    return RunFacts(
        scale=runs.scale,
        runs=len(records),
        asked=len(asked),
        core_seconds=sum(map(_core_seconds, records.values())),
        environment={name: tuple(sorted(values)) for name, values in sorted(environment.items())},
        parts={one.name: tuple(map(state_of, one.all_parts(runs.scale))) for one in experiments()},
        store=store or str(runs.store.root),
    )


def _core_seconds(record: RunRecord) -> float:
    """Wall time times threads."""
    threads = record.environment.get("threads", "1")
    return record.seconds * (int(threads) if threads.isdecimal() else 1)


# Showing it


def anchor(heading: str) -> str:
    """A heading's address as GitHub makes it: lower case, no punctuation, - for blanks."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def evidence(finding: Finding) -> str:
    """The rule of a verdict, what is behind it, and how many runs it still waits for."""
    missing = f"{_count(finding.missing, 'run')} of this scale missing" if finding.missing else ""
    rule = finding.rule and f"{finding.rule}. "
    return rule + "; ".join(text for text in (finding.evidence, missing) if text)


def templates() -> Environment:
    """The templates with what they need; made first by callers that want to know early whether Jinja2 is there."""
    from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

    environment = Environment(
        loader=PackageLoader("recallscope.studies"),
        autoescape=select_autoescape(["html.j2"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "anchor": anchor,
        "cells": lambda number: _count(number, "cell"),
        "evidence": evidence,
        "link_text": lambda text: plain(text, MEANT_IN_LINK),  # within the brackets of a link
        "number": lambda value, form: format(value, form) if isfinite(value) else "-",
        "paragraph": paragraph,
        "plain": plain,
        "sentence": lambda text: text[:1].upper() + text[1:] + ("" if text.endswith("?") else "."),
        "slug": lambda verdict: verdict.replace(" ", "-"),
        "under_tests": lambda path: path.removeprefix("tests/"),
        "url": quote,
    }
    environment.globals["shapes"] = dict(zip(VERDICTS, "●◐✕○", strict=True))
    return environment


def html_page(report: Report) -> str:
    """The report as one HTML page: no network, no script, readable in any browser and on paper."""
    return templates().get_template("report.html.j2").render(report=report)


def markdown_page(report: Report, folder: str = "figures") -> str:
    """The report for readers: what was found, figure by figure, and what we suggest."""
    return templates().get_template("summary.md.j2").render(report=report, folder=folder)


def appendix_page(report: Report, folder: str = "figures") -> str:
    """Every finding, run and claim as Markdown; pictures are looked for as FOLDER/NAME.png or .svg beside it."""
    return templates().get_template("report.md.j2").render(report=report, folder=folder)


def chapter(name: str, runs: PaperRuns | None) -> str:
    """The text of a chapter with its tables; without runs with none."""
    text = (files(__package__) / "chapters" / name).read_text(encoding="utf-8")
    return with_tables(text, runs) if runs else text


def pages(runs: PaperRuns, folder: Path) -> Iterator[tuple[Path, str]]:
    """The chapters that there are runs for, and pages of a folder with places for tables, as far as these change."""
    for name in CHAPTERS:
        if (page := chapter(name, runs)) != chapter(name, None):
            yield folder / name, page
    for path in sorted(path for path in folder.glob("*.md") if path.name not in CHAPTERS):
        before = path.read_text(encoding="utf-8")
        if (page := with_tables(before, runs)) != before:
            yield path, page


def with_tables(page: str, runs: PaperRuns) -> str:
    """A page that is written by hand, with its tables made again."""
    for name, make in TABLES.items():
        place = re.compile(rf"(?<=<!-- {name} -->\n).*?(?=<!-- /{name} -->)", re.DOTALL)
        if place.search(page):
            lines = list(make(runs, page))
            text = "\n".join(["", *lines, "", ""]) if lines else ""
            page = place.sub(text.replace("\\", r"\\"), page)
    return page


def report_data(report: Report) -> dict[str, Any]:
    """The report for programs: plain values, ready for JSON."""
    facts, laws = report.facts, report.laws
    return {
        "recallscope": __version__,
        "scale": facts.scale,
        "runs": facts.runs,
        "runs_asked": facts.asked,
        "core_seconds": facts.core_seconds,
        "environment": {name: list(values) for name, values in facts.environment.items()},
        "verdicts": report.verdicts,
        "own_verdicts": report.own_verdicts,
        "findings": [
            {"experiment": section.name, **asdict(finding)}
            for section in report.sections
            for finding in section.findings
        ],
        "law_table": {
            "groups": list(laws.groups),
            "laws": list(laws.laws),
            "entries": [
                {"law": law, "group": group, **asdict(laws.entries[law, group])}
                for law in laws.laws
                for group in laws.groups
                if (law, group) in laws.entries
            ],
            "best": {group: list(laws.best(group)) for group in laws.groups},
            "notes": list(laws.notes),
        },
    }
