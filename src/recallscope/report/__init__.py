"""Findings in, pages out: one HTML page that needs nothing but itself, and the same as Markdown."""

from recallscope.report.contents import Report, Section, summary, verdict_counts
from recallscope.report.data import report_data
from recallscope.report.facts import PartFacts, RunFacts, run_facts
from recallscope.report.laws import best_laws
from recallscope.report.markdown import markdown_page
from recallscope.report.page import html_page
from recallscope.report.pictures import picture_suffix

__all__ = [
    "PartFacts",
    "Report",
    "RunFacts",
    "Section",
    "best_laws",
    "html_page",
    "markdown_page",
    "picture_suffix",
    "report_data",
    "run_facts",
    "summary",
    "verdict_counts",
]
