"""`recallscope report`: everything a store says about the paper, as one page to read, to print and to pass on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from recallscope.cli.flags import OptionalPath, print_json

if TYPE_CHECKING:
    from recallscope.analysis.paper_runs import PaperRuns
    from recallscope.report import Report as Contents


@dataclass(kw_only=True)
class Report:
    """recallscope report results/paper --out report.html

    Put what the runs of a store say about the paper on one page: every finding with its verdict, the figures, all laws
    against all measured cells, what does not hold, and how to run it again. The page needs no network.
    Without --out or --markdown, only the findings are printed.
    """

    store: Annotated[Path, tyro.conf.Positional]
    """Folder of the runs, of recallscope reproduce."""
    out: OptionalPath = None
    """The page, one HTML file."""
    markdown: OptionalPath = None
    """The same as Markdown; its pictures go to a folder figures beside it."""
    scale: Literal["quick", "small", "paper"] = "small"
    """Which runs of the store: those of this scale of recallscope reproduce."""
    json: bool = False
    """Print findings and law table as one JSON object."""

    def run(self) -> int:
        """Read, find, draw, write."""
        for path in (self.out, self.markdown):
            if path is not None:
                _check_file(path)
        from recallscope.analysis.paper_runs import PaperRuns
        from recallscope.report import report_data
        from recallscope.runs import RunStore

        runs = PaperRuns(RunStore(self.store), self.scale)
        report = self._contents(runs)
        written = list(self._write(report))
        if self.json:
            print_json(report_data(report))
            return 0
        self._print(report, with_findings=not written)
        for path in written:
            print(path)
        return 0

    def _contents(self, runs: PaperRuns) -> Contents:
        from recallscope.analysis.findings import all_findings
        from recallscope.analysis.law_table import law_table
        from recallscope.report import Report as Contents
        from recallscope.report import run_facts

        facts = run_facts(runs, str(self.store))
        if not facts.runs and not any(runs.designed(label) for label in runs.designed_parts):
            raise ValueError(_nothing_measured(runs))
        pictures = draw_all(runs) if self.out or self.markdown else Pictures()
        return Contents(all_findings(runs), law_table(runs), facts, **vars(pictures))

    def _write(self, report: Contents) -> Iterator[Path]:
        from recallscope.atomic import write_atomically
        from recallscope.report import html_page, markdown_page, picture_suffix

        if self.out:
            write_atomically(self.out, html_page(report).encode())
            yield self.out
        if self.markdown:
            for name, data in report.figures.items():
                write_atomically(self.markdown.parent / "figures" / f"{name}{picture_suffix(data)}", data)
            write_atomically(self.markdown, markdown_page(report).encode())
            yield self.markdown

    def _print(self, report: Contents, *, with_findings: bool) -> None:
        from rich.console import Console
        from rich.table import Table

        from recallscope.paper import claim
        from recallscope.report import summary

        console = Console()
        if with_findings:
            table = Table(box=None, pad_edge=False, header_style="dim")
            for column in ("claim", "question", "paper", "measured", "verdict"):
                table.add_column(column, overflow="fold")
            for finding in report.findings:
                number = claim(finding.claim).number
                row = (number, finding.question, finding.paper, finding.ours, finding.verdict)
                table.add_row(*map(_literal, row))
            console.print(table, highlight=False)
            console.print()
        console.print(summary(report), highlight=False, markup=False)


def _literal(text: str) -> str:
    """Brackets of intervals are no markup."""
    from rich.markup import escape

    return escape(text)


def _check_file(path: Path) -> None:
    """Refuse before the work what could not be written after it."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file, such as {path / 'report.html'}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(path.parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: no permission in {path.parent}. Choose another place.")


def _nothing_measured(runs: PaperRuns) -> str:
    from recallscope.analysis.paper_runs import PaperRuns
    from recallscope.sweeps.paper_grids import SCALES

    left, there = set(runs.store.finished_names()), []
    for scale in SCALES:
        if scale != runs.scale and left:  # the largest scale comes last, and takes seconds to write down
            parts = PaperRuns(runs.store, scale).parts.values()
            found = left & {cell.run for part in parts for cell in part.grid.cells()}
            there += [f"{len(found)} of --scale {scale}"] if found else []
            left -= found
    return (
        f"{runs.store.root} holds no finished run of the paper's experiments at scale {runs.scale}"
        + (f" (it has {', '.join(there)})" if there else "")
        + f". Make some: recallscope reproduce all --scale {runs.scale} --store {runs.store.root}"
    )


@dataclass(frozen=True)
class Pictures:
    """Figures as the report takes them."""

    figures: dict[str, bytes] = field(default_factory=dict)
    captions: dict[str, str] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)
    not_drawn: dict[str, str] = field(default_factory=dict)


def draw_all(runs: PaperRuns) -> Pictures:
    """Every figure these runs allow, as PNG or SVG, whichever is smaller; for the others, why not."""
    from tempfile import TemporaryDirectory

    from recallscope.figures.paper_figures import FIGURES
    from recallscope.figures.sources import NoRunsError
    from recallscope.figures.style import save_figure

    pictures = Pictures()
    with TemporaryDirectory() as folder:
        for name, figure in FIGURES.items():
            pictures.captions[name] = figure.title
            pictures.homes[name] = figure.experiment or ""
            try:
                drawn = figure.draw(runs)
            except NoRunsError as error:  # the message says how to get them
                pictures.not_drawn[name] = str(error)
                continue
            files = save_figure(drawn, Path(folder) / name)
            pictures.figures[name] = min((path.read_bytes() for path in files), key=len)
    return pictures
