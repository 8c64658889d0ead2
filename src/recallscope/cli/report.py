"""`recallscope report`: everything a store says about the paper, as one page to read, to print and to pass on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from recallscope.cli.flags import OptionalPath
from recallscope.cli.output import console, print_json, show, table
from recallscope.studies.experiment import SCALES, Scale

if TYPE_CHECKING:
    from recallscope.studies.paper_runs import PaperRuns
    from recallscope.studies.report import Report


@dataclass(kw_only=True)
class WriteReport:
    """recallscope report results/paper --output report.html

    Put what the runs of a store say about the paper on one page: every finding with its verdict, the figures, all laws
    against all measured cells, what does not hold, and how to run it again. The page needs no network.
    Without --output or --markdown, only the findings are printed.
    """

    store: Annotated[Path, tyro.conf.Positional]
    """Folder of the runs, of recallscope reproduce."""
    output: OptionalPath = None
    """The page, one HTML file."""
    markdown: OptionalPath = None
    """A summary for readers, as Markdown. The appendix with every finding and chapters with more detail go beside it,
    pictures to a folder figures beside it, and tables into pages that have a place for them."""
    scale: Scale = "small"
    """Which runs of the store: those of this scale of recallscope reproduce."""
    json: bool = False
    """Print findings and law table as one JSON object."""

    def run(self) -> int:
        """Read, find, draw, write."""
        pages = [path for path in (self.output, self.markdown) if path is not None]
        for path in pages:
            _check_file(path)
        from recallscope.runs.store import RunStore
        from recallscope.studies.paper_runs import PaperRuns
        from recallscope.studies.report import make_report, report_data, templates

        if pages:
            templates()  # without Jinja2 this fails now, not after a minute of work
        runs = PaperRuns(RunStore(self.store), self.scale)
        if not any(map(runs.records, runs.parts)) and all(runs.designed(label).empty for label in runs.designed_parts):
            raise ValueError(_nothing_measured(runs))
        report = make_report(runs, store=str(self.store), pictures=bool(pages), workers=os.cpu_count() or 1)
        written = list(self._write(report, runs))
        if self.json:
            print_json(report_data(report))
            return 0
        self._print(report, with_findings=not written)
        for path in written:
            print(path)
        return 0

    def _write(self, report: Report, runs: PaperRuns) -> Iterator[Path]:
        from recallscope.atomic import write_atomically
        from recallscope.studies.report import appendix_page, html_page, markdown_page, pages

        if self.output:
            write_atomically(self.output, html_page(report).encode())
            yield self.output
        if self.markdown:
            for picture in report.pictures:
                if picture.data:
                    write_atomically(self.markdown.parent / "figures" / picture.file_name, picture.data)
            own = {self.markdown.name: markdown_page(report), report.appendix: appendix_page(report)}
            for path, text in [*((self.markdown.with_name(name), text) for name, text in own.items()),
                               *pages(runs, self.markdown.parent)]:  # fmt: skip
                write_atomically(path, text.encode())
                yield path

    def _print(self, report: Report, *, with_findings: bool) -> None:
        if with_findings:
            columns = ("claim", "question", "paper", "measured", "verdict")
            rows = [(one.number, one.question, one.paper, one.ours, one.verdict) for one in report.findings]
            console().print(table(columns, rows, left=columns))
            show([""])
        show([report.summary])


def _check_file(path: Path) -> None:
    """Refuse before the work what could not be written after it."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file, such as {path / 'report.html'}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: no permission in {path.parent}. Choose another place.")


def _nothing_measured(runs: PaperRuns) -> str:
    from recallscope.studies.experiment import experiments

    left, there = set(runs.store.finished_names()), []
    for scale in SCALES:
        if scale != runs.scale and left:  # the largest scale comes last, and takes seconds to write down
            found = left & {run for experiment in experiments() for run in experiment.cells(scale)}
            there += [f"{len(found)} of --scale {scale}"] if found else []
            left -= found
    return (
        f"{runs.store.root} holds no finished run of the paper's experiments at scale {runs.scale}"
        + (f" (it has {', '.join(there)})" if there else "")
        + f". Make some: recallscope reproduce all --scale {runs.scale} --store {runs.store.root}"
    )
