"""The report as Markdown, figures linked by relative path."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from recallscope.paper import CLAIMS, Claim
from recallscope.report.contents import (
    SHAPES,
    STATUSES,
    TITLE,
    Report,
    Section,
    departures,
    runs_missing,
    summary,
    verdict_counts,
)
from recallscope.report.laws import CAPTION, best_laws, cells_words, error_words, most_cells
from recallscope.report.licences import licence_rows
from recallscope.report.page import CHAPTERS
from recallscope.report.pictures import picture_suffix
from recallscope.report.rerun import rerun_commands

# N_f is no emphasis, _this_ is; [0.1, 0.2] is no link, [this](there) is
_MEANT = re.compile(r"[\\`*|~$]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])")
_MEANT_IN_LINK = re.compile(rf"[\[\]]|{_MEANT.pattern}")
_TAG_OR_ENTITY = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?\w+;)")
_MARKER = re.compile(r"^(?=(?:#{1,6}|[-+])(?:\s|$)|-{3}|>)")
_NUMBERED = re.compile(r"^(\d+)(?=[.)])")


def plain(text: str, meant: re.Pattern[str] = _MEANT) -> str:
    """A text that Markdown leaves as it is: on one line, also within a cell, nothing in it means anything."""
    text = meant.sub(r"\\\g<0>", " ".join(text.split()))
    return _TAG_OR_ENTITY.sub(lambda found: {"<": "&lt;", "&": "&amp;"}[found[0]], text)


def paragraph(text: str) -> str:
    """The same where a block begins: no heading, list or rule comes of it."""
    return _NUMBERED.sub(r"\1\\", _MARKER.sub(r"\\", plain(text)))


def markdown_page(report: Report, figure_folder: str = "figures") -> str:
    """The whole page; figures are looked for as FIGURE_FOLDER/NAME.png or .svg beside it."""
    blocks = [
        f"# {plain(TITLE)}",
        paragraph(summary(report)),
        _table(
            ("verdict", "findings"),
            (
                (f"{SHAPES[verdict]} {verdict}", str(count))
                for verdict, count in verdict_counts(report.findings).items()
            ),
        ),
        _navigation(report),
        f"## {CHAPTERS['findings']}",
        *(block for section in report.sections for block in _experiment(report, section, figure_folder)),
        f"## {CHAPTERS['laws']}",
        *_laws(report),
        f"## {CHAPTERS['departures']}",
        *_departures(report),
        f"## {CHAPTERS['claims']}",
        "; ".join(f"**{status}**: {plain(says)}" for status, says in STATUSES.items()) + ".",
        _table(("claim", "what the paper says", "status", "test, under tests/"), map(_claim_cells, CLAIMS)),
        f"## {CHAPTERS['rerun']}",
        "```console\n"
        + "\n".join(f"$ {command}  # {says}" for command, says in rerun_commands(report.facts))
        + "\n```",
        f"## {CHAPTERS['licences']}",
        _table(("package", "licence"), ((plain(name), plain(text)) for name, text in licence_rows())),
    ]
    return "\n\n".join(blocks) + "\n"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Cells are Markdown already."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows))


def _navigation(report: Report) -> str:
    items = []
    for name, text in CHAPTERS.items():
        items.append(f"- [{text}](#{_anchor(text)})")
        if name == "findings":
            items += [f"  - [{section.name}](#{section.name})" for section in report.sections]
    return "\n".join(items)


def _anchor(heading: str) -> str:
    """As GitHub makes it: lower case, no punctuation, - for blanks."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _citation(claim: Claim) -> str:
    return plain(claim.number) + (f" (`{claim.labels[0]}`)" if claim.labels else "")


def _experiment(report: Report, section: Section, folder: str) -> Iterator[str]:
    yield f"### {section.name}"
    yield paragraph(section.says[:1].upper() + section.says[1:] + ("" if section.says.endswith("?") else "."))
    if section.findings:
        yield "\n".join(f"- {_citation(claim)}: {plain(claim.sentence)}" for claim, _ in section.by_claim())
        yield _table(
            ("claim", "question", "paper", "measured", "verdict", "evidence"),
            (
                (
                    plain(claim.number),
                    plain(finding.question),
                    plain(finding.paper),
                    plain(finding.ours),
                    f"{SHAPES[finding.verdict]} {finding.verdict}",
                    plain("; ".join(word for word in (finding.evidence, runs_missing(finding)) if word)),
                )
                for claim, findings in section.by_claim()
                for finding in findings
            ),
        )
    else:
        yield "Nothing was asked of these runs yet."
    for figure in section.figures:
        address = quote(f"{folder}/{figure}{picture_suffix(report.figures[figure])}")
        yield f"![{plain(report.caption(figure), _MEANT_IN_LINK)}]({address})"
        yield f"{paragraph(figure)}: {plain(report.caption(figure))}"
    if absent := report.absent(section):
        yield f"Not drawn: {plain('; '.join(absent))}"
    if section.parts:
        yield "Runs behind this:"
        yield "\n".join(
            f"- {paragraph(part.label)}: {plain(part.state)}"
            + (f"; unlike the paper: {plain(part.cut)}" if part.cut else "")
            for part in section.parts
        )


def _laws(report: Report) -> Iterator[str]:
    laws = report.laws
    if not laws.entries:
        yield "No measured cell to compare the laws on."
        return

    def row(group: str) -> tuple[str, ...]:
        cells, best = most_cells(laws, group), best_laws(laws, group)

        def cell(law: str) -> str:
            if (law, group) not in laws.entries:
                return "-"
            first, second = error_words(laws.entries[law, group], cells)
            return (f"**{first}**" if law in best else first) + f"<br>{second}"

        return (f"{plain(group)}<br>{cells_words(cells)}", *map(cell, laws.laws))

    yield plain(CAPTION + ".")
    yield _table(("cells", *map(plain, laws.laws)), map(row, laws.groups))
    if laws.notes:
        yield "\n".join(f"- {paragraph(note)}" for note in laws.notes)


def _departures(report: Report) -> Iterator[str]:
    refuted = [finding for finding in report.findings if finding.verdict == "does not hold"]
    if refuted:
        yield "Measured, in this report:"
        yield "\n".join(f"- {paragraph(f'{f.question}: {f.ours} (paper: {f.paper})')}" for f in refuted)
    yield f"Statements that cannot be followed as printed, {len(departures())} in all:"
    yield "\n".join(f"- **{_citation(row)}**: {plain(row.sentence)} **But:** {plain(row.note)}" for row in departures())


def _claim_cells(claim: Claim) -> tuple[str, ...]:
    tests = "<br>".join(f"`{path.removeprefix('tests/')}`" for path in claim.tests) or "-"
    return _citation(claim), plain(claim.sentence), claim.status, tests
