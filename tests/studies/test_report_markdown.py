"""The same as Markdown: what a reader of the rendered page sees is what was meant."""

import re
from dataclasses import replace

import pytest
from markdown_it import MarkdownIt

from recallscope.studies.claims import CLAIMS, Ruling, own_check
from recallscope.studies.report import Report, appendix_page, markdown_page, paragraph, plain


def rendered(text):
    return MarkdownIt("commonmark", {"html": False}).enable("table").enable("strikethrough").render(text)


def shown(html):
    from html import unescape

    return unescape(re.sub(r"<[^>]+>", "", html))


@pytest.mark.parametrize(
    "text",
    [
        "a | b",
        "back \\ slash \\| and pipe",
        "<script>alert(1)</script>",
        "*stars* and _lines_ and __two__ and N_f, V_k, S_B",
        "[link](http://a.b) ![image](c)",
        "`code` ~~gone~~ &amp; &lt;",
        "# heading",
        "- item",
        "+ item",
        "12. item",
        "3) item",
        "---",
        "> quote",
        "[-0.3, +0.2] at (D, N) = (16, 8)",
        "[a]: definition",
        "[a][b] [c]",
        "N <= D/8 < N, x<y, <b>, </i>, a & b, &copy;, &#60;",
    ],
)
def test_a_text_is_shown_as_it_is(text):
    assert rendered(paragraph(text)).strip() == f"<p>{shown_as_html(text)}</p>"
    cells = rendered(f"| a | b |\n| --- | --- |\n| {plain(text)} | x |\n")
    assert cells.count("<td>") == 2
    assert shown(cells.split("<td>")[1].split("</td>")[0]) == text


def shown_as_html(text):
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def test_dollars_are_no_formula():
    assert plain("$i$") == "\\$i\\$"


def test_formulas_stay_readable_in_the_source():
    text = "N <= D/2, S_B > 0, a = 1.2 [0.9, 1.3] (m_V = 3), x & y"
    assert plain(text) == text


def test_lines_are_joined():
    assert plain("a\n| b\r\n\tc") == "a \\| b c"


def test_every_table_row_has_the_columns_of_its_head(report):
    text = appendix_page(report)
    assert rendered(text).count("<table>") > 4
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
        widths = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(widths) == 1, table


def test_texts_of_findings_survive(report):
    html = rendered(appendix_page(report))
    assert "<script" not in html
    assert shown(html).count(report.findings[2].question) >= 4
    for row in CLAIMS:
        assert row.sentence in shown(html)


def test_figures_are_linked_by_relative_path(report):
    text = appendix_page(report, "pictures")
    assert "](pictures/fig-7.png)" in text
    assert "](pictures/heads-figure.svg)" in text
    assert rendered(text).count("<img") == 4
    assert "data:" not in text


def test_the_best_law_is_bold(report):
    text = appendix_page(report)
    assert "**0.0060 (0.020)**" in text
    assert "**0.0001" not in text


def test_headings_are_where_the_contents_point(report):
    text = appendix_page(report)
    headings = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in text.splitlines()
        if line.startswith("#")
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", text)) <= headings


def test_the_same_report_gives_the_same_bytes(report):
    assert appendix_page(report) == appendix_page(replace(report))


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
