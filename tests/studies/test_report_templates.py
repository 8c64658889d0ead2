"""Both templates show the same report: every finding, in every field, whatever stands in it."""

import re
from html import unescape

import numpy as np
import pytest
from markdown_it import MarkdownIt

from recallscope.figures.style import new_figure, small_picture
from recallscope.runs.store import RunStore
from recallscope.studies.experiment import all_findings
from recallscope.studies.law_table import LawTable
from recallscope.studies.paper_runs import PaperRuns
from recallscope.studies.report import Picture, Report, appendix_page, html_page, run_facts


def text_of_html(report):
    return unescape(re.sub(r"<[^>]+>", "", html_page(report)))


def text_of_markdown(report):
    html = MarkdownIt("commonmark", {"html": False}).enable("table").render(appendix_page(report))
    return unescape(re.sub(r"<[^>]+>", "", html))


@pytest.fixture(params=[text_of_html, text_of_markdown], ids=["html", "markdown"])
def shown(request):
    return request.param


def test_every_field_of_every_finding_is_shown(shown, report):
    text = shown(report)
    for finding in report.findings:
        for field in (finding.question, finding.paper, finding.ours, finding.verdict, finding.rule, finding.evidence):
            assert " ".join(field.split()) in text


def test_every_question_of_the_real_experiments_is_shown(shown, tmp_path):
    """On an empty store nothing is tested, and everything is asked."""
    runs = PaperRuns(RunStore(tmp_path / "store", create=True), "small")
    report = Report(all_findings(runs), LawTable((), (), {}), run_facts(runs))
    assert len(report.findings) > 30
    text = shown(report)
    for finding in report.findings:
        assert finding.question in text
        assert finding.paper in text
        assert finding.evidence in text
    for section in report.sections:
        assert all(line in text for line in section.runs)


def test_experiments_of_our_own_stand_beyond_the_paper(tmp_path):
    """Those that no claim of the paper stands behind, whether their runs are there or not."""
    runs = PaperRuns(RunStore(tmp_path / "store", create=True), "small")
    page = appendix_page(Report(all_findings(runs), LawTable((), (), {}), run_facts(runs)))
    about, beyond = page.split("\n## Beyond the paper\n")
    beyond = beyond.split("\n## ")[0]
    for name in ("architectures", "components", "large-sizes"):
        assert f"\n### {name}\n" in beyond
        assert f"\n### {name}\n" not in about
    assert "\n### dn-grid\n" in about
    assert "incomplete: recall, DeltaNet, 0 of 12 runs" in beyond


def test_summary_chapters_commands_and_laws_are_shown(shown, report):
    text = shown(report)
    assert report.summary in text
    assert all(heading in text for heading in report.chapters.values())
    assert all(f"{command}  # {meaning}" in text for command, meaning in report.commands)
    assert all(law in text for law in report.laws.laws)
    assert all(note in text for note in report.laws.notes)


def test_a_picture_that_is_too_large_is_made_smaller():
    """Noise compresses badly: fewer colours, then fewer dots, until it fits."""

    def noise(most_bytes):
        figure = new_figure(4, 4)
        figure.subplots().imshow(np.random.default_rng(0).normal(size=(400, 400)), cmap="RdBu")
        return small_picture(figure, most_bytes)

    large, small = noise(10**7), noise(100_000)
    assert len(small) <= 100_000 < len(large)
    assert Picture("noise", "noise", data=small).suffix == ".png"
    assert small == noise(100_000)
