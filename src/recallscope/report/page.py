"""The report as one HTML page: no network, no script, readable in any browser and on paper."""

from __future__ import annotations

from recallscope.report.contents import TITLE, Report, Section, departures, summary
from recallscope.report.markup import Markup, element, lines, together
from recallscope.report.page_style import style_sheet
from recallscope.report.page_tables import (
    citation,
    claims_table,
    counts_table,
    findings_table,
    laws_table,
    licences_table,
    verdict_filter,
)
from recallscope.report.pictures import data_address
from recallscope.report.rerun import rerun_commands

# What the page may load: itself. A browser holds it to that.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
CHAPTERS = {
    "findings": "Findings",
    "laws": "Laws against measured accuracy",
    "departures": "What does not hold, and what is right instead",
    "claims": "All claims of the paper",
    "rerun": "How to rerun",
    "licences": "Software and licences",
}


def html_page(report: Report) -> str:
    """The whole page. The same report gives the same text."""
    head = lines(
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", TITLE),
        element("link", rel="icon", href="data:,"),
        element("style", Markup(style_sheet())),
    )
    main = lines(
        element("header", lines(element("h1", TITLE), element("p", summary(report), id="summary"))),
        counts_table(report),
        _navigation(report),
        _chapter("findings", verdict_filter(report), *(_experiment(report, section) for section in report.sections)),
        _chapter("laws", *_laws(report)),
        _chapter("departures", *_departures(report)),
        _chapter("claims", claims_table()),
        _chapter("rerun", *_rerun(report)),
        _chapter("licences", licences_table()),
    )
    body = element("main", main)
    return (
        f"<!DOCTYPE html>\n{element('html', lines(element('head', head), element('body', lines(body))), lang='en')}\n"
    )


def _chapter(name: str, *children: str) -> Markup:
    return element("section", lines(element("h2", CHAPTERS[name], id=name), *children), aria_labelledby=name)


def _navigation(report: Report) -> Markup:
    def item(address: str, text: str, *inside: str) -> Markup:
        return element("li", element("a", text, href=f"#{address}"), *inside)

    experiments = (item(f"experiment-{section.name}", section.name) for section in report.sections)
    inner = {"findings": element("ul", lines(*experiments))}
    items = (item(name, text, inner.get(name, Markup())) for name, text in CHAPTERS.items())
    return element("nav", element("ul", lines(*items)), aria_label="Contents")


def _experiment(report: Report, section: Section) -> Markup:
    name = f"experiment-{section.name}"
    absent = "; ".join(report.absent(section))
    return element(
        "section",
        lines(
            element("h3", element("code", section.name), f": {section.says}", id=name),
            findings_table(section) if section.findings else element("p", "Nothing was asked of these runs yet."),
            *(_figure(report, section, figure) for figure in section.figures),
            element("p", f"Not drawn: {absent}", class_="soft") if absent else "",
            _parts(section),
        ),
        aria_labelledby=name,
    )


def _figure(report: Report, section: Section, name: str) -> Markup:
    caption = report.caption(name)
    said = f"{caption}. The findings of this section say it in numbers." if section.findings else caption
    picture = element("img", src=data_address(report.figures[name]), alt=said)
    return element("figure", picture, element("figcaption", element("code", name), f": {caption}"), id=f"figure-{name}")


def _parts(section: Section) -> Markup:
    if not section.parts:
        return Markup()
    items = (
        element("li", f"{part.label}: {part.state}" + (f"; unlike the paper: {part.cut}" if part.cut else ""))
        for part in section.parts
    )
    return element("details", element("summary", "Runs behind this"), element("ul", lines(*items)), open=True)


def _laws(report: Report) -> list[Markup]:
    laws = report.laws
    if not laws.entries:
        return [element("p", "No measured cell to compare the laws on.")]
    notes = [element("ul", lines(*(element("li", note) for note in laws.notes)))] if laws.notes else []
    return [laws_table(laws), *notes]


def _departures(report: Report) -> list[Markup]:
    refuted = [finding for finding in report.findings if finding.verdict == "does not hold"]
    found = (element("li", f"{finding.question}: {finding.ours} (paper: {finding.paper})") for finding in refuted)
    rows = (
        together(
            element("dt", citation(row)),
            element("dd", row.sentence),
            element("dd", element("strong", "But: "), row.note),
        )
        for row in departures()
    )
    measured = [element("p", "Measured, in this report:"), element("ul", lines(*found))] if refuted else []
    return [
        *measured,
        element("p", f"Statements that cannot be followed as printed, {len(departures())} in all:"),
        element("dl", lines(*rows)),
    ]


def _rerun(report: Report) -> list[Markup]:
    commands = "\n".join(f"{command}  # {says}" for command, says in rerun_commands(report.facts))
    return [
        element(
            "p", "Runs that are in the store are not paid for twice; a sweep that was stopped goes on where it was."
        ),
        element("pre", element("code", commands), tabindex="0"),
    ]
