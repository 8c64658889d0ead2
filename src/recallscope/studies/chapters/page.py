"""What a chapter is made of: its title, and headings, paragraphs, lists and tables in their order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from recallscope.studies.paper_runs import PaperRuns

Row = Iterable[object]
Size4 = tuple[int, int, int, int]  # V, N_f, D, N


@dataclass(frozen=True)
class Chapter:
    """A page beside the report; blocks are Markdown."""

    title: str
    blocks: tuple[str, ...]
    done: int  # runs behind it that the store has
    asked: int


def chapter(title: str, blocks: Iterable[str], runs: PaperRuns, labels: Iterable[str]) -> Chapter:
    """A chapter on the runs of some parts; runs that parts share count once."""
    here = [label for label in labels if label in runs.parts]
    asked = {cell.run for label in here for cell in runs.parts[label].cells}
    done = {record.run for label in here for record in runs.records(label)}
    return Chapter(title, tuple(blocks), len(done), len(asked))


def table(columns: Row, rows: Iterable[Row]) -> str:
    """A Markdown table."""
    columns = list(columns)
    return "\n".join([_row(columns), "|---" * len(columns) + "|", *map(_row, rows)])


def _row(cells: Row) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def bullets(sentences: Iterable[str]) -> Iterator[str]:
    """A Markdown list, as one block; none without sentences."""
    if found := [f"- {sentence}" for sentence in sentences]:
        yield "\n".join(found)


def sizes_of(cell: Size4) -> str:
    """The head of a column."""
    V, N_f, D, N = cell
    return f"V {V}, N_f {N_f}, D {D}, N {N}"
