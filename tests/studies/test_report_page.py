"""The page: complete, sound, escaped, and alone in the world."""

import re
import shlex
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from recallscope.cli.main import main
from recallscope.studies.claims import CLAIMS
from recallscope.studies.experiment import experiments
from recallscope.studies.law_table import LawTable
from recallscope.studies.report import Picture, Report, html_page

VOID = {"br", "img", "input", "link", "meta"}
ADDRESSES = {"src", "href", "srcset", "action", "data", "poster", "formaction", "background", "cite", "ping"}


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


def test_texts_are_shown_as_they_are(report, page):
    text = html_page(report)
    assert "<script" not in text
    assert "<b>" not in text
    assert "<!-- k" not in text
    nasty = report.findings[2].question
    assert page.all_text.count(nasty) >= 4  # question, paper, measured, evidence
    assert nasty in next(image["alt"] for image in page.named("img"))


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


def test_the_best_law_of_a_column_is_bold(report):
    text = html_page(report)
    assert "<strong>0.0060 (0.020)</strong>" in text  # the narrow law is nearer, on three cells only
    assert "<strong>0.0200 (0.100)</strong>" in text
    assert text.count(" (best)") == 2


def test_all_claims_departures_and_commands_are_there(report, page):
    for row in CLAIMS:
        assert row.sentence in page.all_text
        assert row.status != "departs" or row.note in page.all_text
    for experiment in experiments():
        assert f"recallscope reproduce {experiment.name} --scale small --store 'my runs/paper'" in page.all_text


def test_every_command_names_a_command_and_its_flags(report, capsys):
    for command, _ in report.commands:
        _, name, *arguments = shlex.split(command)
        with pytest.raises(SystemExit):
            main([name, *(arguments[:1] if name == "store" else []), "--help"])
        text = capsys.readouterr().out
        assert all(word in text for word in arguments if word.startswith("--")), command


def test_the_same_report_gives_the_same_bytes(report):
    turned = replace(report, pictures=report.pictures[::-1])
    assert html_page(report) == html_page(replace(report)) == html_page(turned)


def test_an_empty_report_is_still_a_page(facts):
    empty = Report({}, LawTable((), (), {}), replace(facts, runs=0, environment={}, parts={}))
    page = Page(html_page(empty))
    assert "Of 0 questions" in page.all_text
    assert "No measured cell" in page.all_text
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
