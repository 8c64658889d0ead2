"""The tables of the page: findings, laws, claims. Every header says which cells it is the header of."""

from __future__ import annotations

from recallscope.analysis.findings.finding import Finding, Verdict
from recallscope.analysis.law_table import LawTable
from recallscope.paper import CLAIMS, Claim
from recallscope.report.contents import SHAPES, STATUSES, VERDICTS, Report, Section, runs_missing, verdict_counts
from recallscope.report.laws import CAPTION, best_laws, cells_words, error_words, most_cells
from recallscope.report.licences import licence_rows
from recallscope.report.markup import Markup, element, lines, together
from recallscope.report.page_style import slug


def table(caption: str, head: tuple[str, ...], *bodies: str, label: str, class_: str = "") -> Markup:
    """A table that scrolls by itself where the page is narrow, also by keyboard."""
    header = element("tr", *(element("th", name, scope="col") for name in head))
    inside = lines(element("caption", caption), element("thead", header), *bodies)
    return element(
        "div",
        element("table", inside, **({"class": class_} if class_ else {})),
        class_="wide",
        tabindex="0",
        role="region",
        aria_label=label,
    )


def verdict_mark(verdict: Verdict) -> Markup:
    """Shape, word and colour."""
    shape = element("span", f"{SHAPES[verdict]} ", aria_hidden="true")
    return element("span", shape, verdict, class_=f"verdict {slug(verdict)}")


def counts_table(report: Report) -> Markup:
    """How many findings have each verdict."""
    rows = (
        element("tr", element("th", verdict_mark(verdict), scope="row"), element("td", str(count), class_="number"))
        for verdict, count in verdict_counts(report.findings).items()
    )
    body = element("tbody", lines(*rows))
    return table("Findings by verdict", ("verdict", "findings"), body, label="Findings by verdict", class_="counts")


def findings_table(section: Section) -> Markup:
    """One body per claim: its sentence, then for each question the paper's value, ours, the verdict, the evidence."""
    bodies = (
        element("tbody", lines(_claim_row(claim), *(_finding_rows(finding) for finding in findings)))
        for claim, findings in section.by_claim()
    )
    return table(
        "Under each statement of the paper: what was asked of it, what the paper says, what was measured",
        ("question", "paper", "measured", "verdict"),
        *bodies,
        label=f"Findings: {section.name}",
        class_="findings",
    )


def citation(claim: Claim) -> Markup:
    """The claim's number, leading to its row in the table of all claims, and its LaTeX label."""
    label = together(" ", element("code", claim.labels[0])) if claim.labels else Markup()
    return together(element("a", claim.number, href=f"#claim-{claim.key}"), label)


def _claim_row(claim: Claim) -> Markup:
    return element(
        "tr", element("th", citation(claim), ": ", claim.sentence, scope="rowgroup", colspan="4"), class_="claim"
    )


def _finding_rows(finding: Finding) -> Markup:
    shown = {"data_verdict": slug(finding.verdict)}
    first = element(
        "tr",
        element("th", finding.question, scope="row", rowspan="2"),
        element("td", finding.paper),
        element("td", finding.ours),
        element("td", verdict_mark(finding.verdict)),
        class_="finding",
        **shown,
    )
    words = [finding.evidence, runs_missing(finding)]
    evidence = element("td", "Evidence: ", "; ".join(word for word in words if word), colspan="3")
    return together(first, "\n", element("tr", evidence, class_="evidence", **shown))


def laws_table(laws: LawTable) -> Markup:
    """Groups of cells down, laws across."""

    def row(group: str) -> Markup:
        cells, best = most_cells(laws, group), best_laws(laws, group)

        def cell(law: str) -> Markup:
            entry = laws.entries.get((law, group))
            if entry is None:
                return element("td", "-", class_="number", title="does not apply")
            first, second = error_words(entry, cells)
            if law in best:
                bold = together(element("strong", first), element("span", " (best)", class_="unseen"))
                return element("td", bold, element("small", second), class_="number best")
            return element("td", first, element("small", second), class_="number")

        name = element("th", group, element("small", f" {cells_words(cells)}"), scope="row")
        return element("tr", name, *map(cell, laws.laws))

    body = element("tbody", lines(*map(row, laws.groups)))
    return table(CAPTION, ("cells", *laws.laws), body, label="Laws against measured cells", class_="laws")


def claims_table() -> Markup:
    """Every row of the checklist."""

    def row(claim: Claim) -> Markup:
        tests = [element("code", path.removeprefix("tests/")) for path in claim.tests]
        return element(
            "tr",
            element(
                "th",
                claim.number,
                *(together(element("br"), element("code", label)) for label in claim.labels[:1]),
                scope="row",
            ),
            element("td", claim.sentence),
            element("td", claim.status, title=STATUSES[claim.status]),
            element(
                "td",
                *(together(*([element("br")] if n else []), test) for n, test in enumerate(tests)) if tests else ("-",),
            ),
            id=f"claim-{claim.key}",
        )

    return table(
        "Status: " + "; ".join(f"{status}, {says}" for status, says in STATUSES.items()),
        ("claim", "what the paper says", "status", "test, under tests/"),
        element("tbody", lines(*map(row, CLAIMS))),
        label="All claims",
    )


def licences_table() -> Markup:
    """What the installed packages say of themselves (Tab. 10)."""
    rows = (element("tr", element("th", name, scope="row"), element("td", text)) for name, text in licence_rows())
    return table(
        "Direct dependencies that are installed; no code of the paper's assets is copied",
        ("package", "licence"),
        element("tbody", lines(*rows)),
        label="Licences",
    )


def verdict_filter(report: Report) -> Markup:
    """Radio buttons that need no script; hidden where the browser cannot filter."""
    counts = verdict_counts(report.findings)

    def choice(name: str, text: str, chosen: bool = False) -> Markup:
        button = element("input", type="radio", name="only", id=f"only-{name}", checked=chosen)
        return element("label", button, f" {text}")

    choices = (choice(slug(verdict), f"{SHAPES[verdict]} {verdict} ({counts[verdict]})") for verdict in VERDICTS)
    legend = element("legend", "Show findings")
    return element("fieldset", lines(legend, choice("all", f"all ({len(report.findings)})", True), *choices))
