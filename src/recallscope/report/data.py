"""The report for programs: plain values, ready for JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from recallscope import __version__
from recallscope.report.contents import Report, verdict_counts
from recallscope.report.laws import best_laws


def report_data(report: Report) -> dict[str, Any]:
    """Findings, verdicts, law table and what stands behind them."""
    facts, laws = report.facts, report.laws
    return {
        "recallscope": __version__,
        "scale": facts.scale,
        "runs": facts.runs,
        "runs_asked": facts.asked,
        "core_seconds": facts.core_seconds,
        "environment": {name: list(values) for name, values in facts.environment},
        "verdicts": verdict_counts(report.findings),
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
            "best": {group: list(best_laws(laws, group)) for group in laws.groups},
            "notes": list(laws.notes),
        },
    }
