"""The report as one page and as Markdown: every finding, sound, escaped, and alone in the world."""

import re
import shlex
from collections import Counter
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pytest
from markdown_it import MarkdownIt

from recallscope.cli.main import main
from recallscope.figures.style import new_figure, small_picture
from recallscope.runs.store import RunStore
from recallscope.studies.claims import CLAIMS, Ruling, own_check
from recallscope.studies.experiment import all_findings, experiments
from recallscope.studies.law_table import LawTable
from recallscope.studies.markdown import paragraph, plain
from recallscope.studies.paper_runs import PaperRuns
from recallscope.studies.report import Picture, Report, appendix_page, html_page, markdown_page, run_facts

VOID = {"br", "img", "input", "link", "meta"}
ADDRESSES = {"src", "href", "srcset", "action", "data", "poster", "formaction", "background", "cite", "ping"}
BOTH = pytest.mark.parametrize("template", [html_page, lambda report: rendered(appendix_page(report))])


def rendered(text):
    return MarkdownIt("commonmark", {"html": False}).enable("table").enable("strikethrough").render(text)


def shown(html):
    return unescape(re.sub(r"<[^>]+>", "", html))


class Page(HTMLParser):
    """Tags, attributes, ids and texts; complains where tags do not close in order."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.texts = [], [], Counter()
        self.all_text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        assert len(dict(attrs)) == len(attrs), (tag, attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts[self.open[-1] if self.open else ""] += 1
        if "style" not in self.open:
            self.all_text += data

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def page(report):
    return Page(html_page(report))


@pytest.fixture(scope="module")
def untested(tmp_path_factory):
    """On an empty store nothing is tested, and everything is asked."""
    runs = PaperRuns(RunStore(tmp_path_factory.mktemp("empty") / "store", create=True), "small")
    return Report(all_findings(runs), LawTable((), (), {}), run_facts(runs))


# Both templates


@BOTH
def test_every_field_of_every_finding_and_claim_is_shown_as_it_is(template, report):
    html = template(report)
    text = shown(html)
    assert not any(tag in html for tag in ("<script", "<b>", "<!-- k"))
    assert text.count(report.findings[2].question) >= 4  # question, paper, measured, evidence
    for finding in report.findings:
        for field in (finding.question, finding.paper, finding.ours, finding.verdict, finding.rule, finding.evidence):
            assert " ".join(field.split()) in text
    assert all(row.sentence in text for row in CLAIMS)
    assert report.summary in text
    assert all(heading in text for heading in report.chapters.values())
    assert all(f"{command}  # {meaning}" in text for command, meaning in report.commands)
    assert all(part in text for part in (*report.laws.laws, *report.laws.notes))
    assert html == template(replace(report))


@BOTH
def test_every_question_of_the_real_experiments_is_shown(template, untested):
    assert len(untested.findings) > 30
    text = shown(template(untested))
    for finding in untested.findings:
        assert all(part in text for part in (finding.question, finding.paper, finding.evidence))
    assert all(line in text for section in untested.sections for line in section.runs)


@BOTH
def test_the_best_law_of_a_column_is_bold(template, report):
    """The narrow law is nearer, on three cells only."""
    text = template(report)
    bold = ("<strong>0.0060 (0.020)", "<strong>0.0200 (0.100)", "<strong>0.0001")
    assert [part in text for part in bold] == [True, True, False]


# One page


def test_the_page_asks_nothing_of_the_network(report, page):
    for tag, attributes in page.tags:
        for name in ADDRESSES & attributes.keys():
            assert attributes[name].startswith(("#", "data:")), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes)
    style = html_page(report).split("<style>")[1].split("</style>")[0]
    assert "url(" not in style
    assert "@import" not in style
    assert "<" not in style
    assert not {"script", "iframe", "object", "embed", "svg", "form", "base"} & {tag for tag, _ in page.tags}
    policy = next(m for m in page.named("meta") if m.get("http-equiv") == "Content-Security-Policy")["content"]
    assert "default-src 'none'" in policy


def test_links_lead_somewhere_and_ids_are_distinct(page):
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    for link in page.named("a"):
        assert link["href"][1:] in ids
    for _, attributes in page.tags:
        if "aria-labelledby" in attributes:
            assert attributes["aria-labelledby"] in ids


def test_tables_tell_which_cells_a_header_is_for(page):
    assert len(page.named("table")) == len(page.named("caption")) == len(page.named("thead"))
    assert all(header["scope"] in ("col", "row", "rowgroup") for header in page.named("th"))


def test_rows_are_as_wide_as_their_table(report):
    """Counting spans, every row of the findings has four columns."""
    table = html_page(report).split('class="findings"')[1].split("</table>")[0]
    carried = 0
    for row in re.findall(r"<tr.*?</tr>", table, flags=re.S):
        cells = re.findall(r"<t[hd]([^>]*)>", row)
        width = sum(int((re.search(r'colspan="(\d+)"', cell) or [0, 1])[1]) for cell in cells)
        assert width + carried == 4, row
        carried = sum('rowspan="2"' in cell for cell in cells)


def test_every_picture_has_a_text_and_its_section(report, page):
    images = page.named("img")
    assert len(images) == 4
    assert all(image["alt"] and image["src"].startswith("data:image/") for image in images)
    text = html_page(report)
    home = text.index('id="experiment-dn-grid"')
    assert home < text.index('id="figure-fig-7"') < text.index('id="experiment-curves"')
    assert text.index('id="experiment-heads"') < text.index('id="figure-heads-figure"')
    assert text.index('id="experiment-seeds"') < text.index('id="figure-homeless"')
    assert text.index('id="experiment-further"') < text.index("figure-nobody")
    assert "fig-10: no runs of layers" in page.all_text
    assert "Not drawn: fig-1: there is no figure" in page.all_text


def test_verdicts_are_counted_and_said_by_word_and_shape(report, page):
    summary = html_page(report).split('<p id="summary">')[1].split("</p>")[0]
    assert "Of 5 questions about the paper's claims, 4 could" in summary.replace("&#39;", "'")
    assert "of our own" not in summary
    assert "2 hold, 1 holds approximately, 1 does not hold; 1 was not tested" in summary
    for phrase in ("scale small", "51 of the 410 runs", "3.4 hours", "torch 2.12.0 and 2.13.0+cpu", "recallscope 0."):
        assert phrase in summary
    marks = Counter(
        attributes["class"] for attributes in page.named("span") if "verdict" in attributes.get("class", "")
    )
    assert marks == {  # one each in the table of counts
        "verdict holds": 3,
        "verdict holds-approximately": 2,
        "verdict does-not-hold": 2,
        "verdict not-tested": 2,
    }
    for mark in ("● </span>holds", "◐ </span>holds approximately", "✕ </span>does not hold", "○ </span>not tested"):
        assert mark in html_page(report)
    assert "3 runs of this scale missing" in page.all_text


def test_every_command_names_a_command_and_its_flags(report, capsys):
    for command, _ in report.commands:
        _, name, *arguments = shlex.split(command)
        with pytest.raises(SystemExit):
            main([name, *(arguments[:1] if name == "store" else []), "--help"])
        text = capsys.readouterr().out
        assert all(word in text for word in arguments if word.startswith("--")), command


def test_departures_and_experiments_are_there_and_the_order_of_pictures_is_no_matter(report, page):
    assert all(row.note in page.all_text for row in CLAIMS if row.status == "departs")
    for experiment in experiments():
        assert f"recallscope reproduce {experiment.name} --scale small --store 'my runs/paper'" in page.all_text
    assert html_page(report) == html_page(replace(report, pictures=report.pictures[::-1]))


def test_an_empty_report_is_still_a_page(facts):
    empty = Report({}, LawTable((), (), {}), replace(facts, runs=0, environment={}, parts={}))
    page = Page(html_page(empty))
    assert "Of 0 questions" in page.all_text
    assert "No measured setting" in page.all_text
    assert page.named("img") == []


def test_what_is_no_picture_is_refused(report):
    with pytest.raises(ValueError, match="neither PNG nor SVG"):
        html_page(replace(report, pictures=[Picture("fig-7", "a film", data=b"GIF89a")]))


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("theme", [":root {{ color-scheme", "prefers-color-scheme: dark"])
def test_texts_stand_out_from_their_ground(report, theme):
    """Contrast 4.5 to 1 (WCAG AA), in light and in dark."""
    style = html_page(report).split(theme.replace("{{", "{"))[1].split("}")[0]
    colours = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", style))
    assert len(colours) == 10
    grounds = [luminance(colours.pop(name)) for name in ("ground", "card")]
    del colours["line"]
    for name, colour in colours.items():
        for ground in grounds:
            low, high = sorted((luminance(colour), ground))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (name, colour)


def test_a_picture_that_is_too_large_is_made_smaller():
    """Noise compresses badly: fewer colours, then fewer dots, until it fits."""

    def noise(most_bytes):
        figure = new_figure(2, 2)
        figure.subplots().imshow(np.random.default_rng(0).normal(size=(200, 200)), cmap="RdBu")
        return small_picture(figure, most_bytes)

    large, small = noise(10**7), noise(25_000)
    assert len(small) <= 25_000 < len(large)
    assert Picture("noise", "noise", data=small).suffix == ".png"
    assert small == noise(25_000)


# Markdown: what a reader of the rendered page sees is what was meant


@pytest.mark.parametrize(
    "text",
    [
        "a | b", "back \\ slash \\| and pipe", "<script>alert(1)</script>", "`code` ~~gone~~ &amp; &lt;",
        "*stars* and _lines_ and __two__ and N_f, V_k, S_B", "[link](http://a.b) ![image](c)", "# heading", "- item",
        "+ item", "12. item", "3) item", "---", "> quote", "[-0.3, +0.2] at (D, N) = (16, 8)", "[a]: definition",
        "[a][b] [c]", "N <= D/8 < N, x<y, <b>, </i>, a & b, &copy;, &#60;",
    ],
)  # fmt: skip
def test_a_text_is_shown_as_it_is(text):
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    assert rendered(paragraph(text)).strip() == f"<p>{escaped}</p>"
    cells = rendered(f"| a | b |\n| --- | --- |\n| {plain(text)} | x |\n")
    assert cells.count("<td>") == 2
    assert shown(cells.split("<td>")[1].split("</td>")[0]) == text


def test_formulas_stay_readable_dollars_are_none_and_lines_are_joined():
    text = "N <= D/2, S_B > 0, a = 1.2 [0.9, 1.3] (m_V = 3), x & y"
    assert (plain(text), plain("$i$"), plain("a\n| b\r\n\tc")) == (text, "\\$i\\$", "a \\| b c")


def test_every_table_row_has_the_columns_of_its_head(report):
    text = appendix_page(report)
    assert rendered(text).count("<table>") > 4
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(widths) == 1, table


def test_figures_are_linked_by_relative_path(report):
    text = appendix_page(report, "pictures")
    assert "](pictures/fig-7.png)" in text
    assert "](pictures/heads-figure.svg)" in text
    assert rendered(text).count("<img") == 4
    assert "data:" not in text


def test_headings_are_where_the_contents_point(report):
    text = appendix_page(report)
    headings = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= headings


def test_our_own_questions_are_counted_and_listed_apart(findings, laws, facts):
    findings |= {
        "architectures": [own_check("Which is best?").answer("DeltaNet", Ruling("does not hold", "r"), "14 forms")]
    }
    findings["heads"].append(own_check("Is it ours?").answer("yes", Ruling("holds", "up to 1"), "1 run"))
    report = Report(findings, laws, facts)
    assert "Of 5 questions about the paper's claims" in report.summary
    assert "Of 2 questions of our own, 2 could be answered at scale small: 1 holds, 0 hold" in report.summary
    assert [finding.question for finding in report.refuted] == ["Designed against theory"]
    about, beyond = appendix_page(report).split("\n## Beyond the paper\n")
    assert "Is it ours?" not in about
    assert "| Is it ours? | yes | ● holds | up to 1. 1 run |" in beyond
    assert "| Which is best? | DeltaNet | ✕ does not hold | r. 14 forms |" in beyond


def test_experiments_of_our_own_stand_beyond_the_paper(untested):
    """Those that no claim of the paper stands behind, whether their runs are there or not."""
    about, beyond = appendix_page(untested).split("\n## Beyond the paper\n")
    beyond = beyond.split("\n## ")[0]
    for name in ("architectures", "components", "large-sizes"):
        assert f"\n### {name}\n" in beyond
        assert f"\n### {name}\n" not in about
    assert "\n### dn-grid\n" in about
    assert "incomplete: recall, DeltaNet, 0 of 12 runs" in beyond


def test_the_page_for_readers_says_what_it_rests_on(report):
    """Every verdict with its rule, nasty texts as they are, suggestions as a diff, and no runs that do not exist."""
    text = markdown_page(report, "pictures")
    assert "off by 0.01 [0.00, 0.02]" in text
    assert "● *Holds* (up to 0.02)." in text
    assert "](pictures/fig-7.png)" in text
    html = rendered(text)
    assert "<script" not in html
    assert report.findings[2].question in shown(html)
    assert "```diff" in text
    assert "@software{recallscope" in text
    assert f"]({report.appendix})" in text
    assert "fig-10.png" not in text
    assert text == markdown_page(replace(report), "pictures")
