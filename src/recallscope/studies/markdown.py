"""Findings and numbers as Markdown: texts that mean nothing to it, tables, lists; and their places in a page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from math import isnan

from recallscope.studies.experiment import find_experiment
from recallscope.studies.paper_runs import PaperRuns

Row = Iterable[object]
Table = Callable[[PaperRuns, str], Iterable[str]]  # the lines of a place in a page, from the runs and the page

# N_f is no emphasis, _this_ is; [0.1, 0.2] is no link, [this](there) is
_MEANT = re.compile(r"[\\`*|~$]|(?<![^\W_])_|_(?![^\W_])|\](?=[(\[:])")
MEANT_IN_LINK = re.compile(rf"[\[\]]|{_MEANT.pattern}")
_TAG_OR_ENTITY = re.compile(r"<(?=[A-Za-z/!?])|&(?=#?\w+;)")
_MARKER = re.compile(r"^(?=(?:#{1,6}|[-+])(?:\s|$)|-{3}|>)")
_NUMBERED = re.compile(r"^(\d+)(?=[.)])")


def plain(text: str, meant: re.Pattern[str] = _MEANT) -> str:
    """A text that Markdown leaves as it is: on one line, also within a cell, nothing in it means anything."""
    text = meant.sub(r"\\\g<0>", " ".join(text.split()))
    return _TAG_OR_ENTITY.sub(lambda found: {"<": "&lt;", "&": "&amp;"}[found[0]], text)


def paragraph(text: str) -> str:
    """The same where a block begins: no heading, list or rule comes of it."""
    return _NUMBERED.sub(r"\1\\", _MARKER.sub(r"\\", plain(text)))


def table(columns: Row, rows: Iterable[Row]) -> list[str]:
    """The lines of a table."""
    columns = list(columns)
    return [_row(columns), "|---" * len(columns) + "|", *map(_row, rows)]


def _row(cells: Row) -> str:
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def sizes_of(cell: tuple[int, int, int, int]) -> str:
    """The head of a column."""
    V, N_f, D, N = cell
    return f"V {V}, N_f {N_f}, D {D}, N {N}"


def number(seeds: Iterable[float], ends: tuple[float, float], digits: int = 3) -> str:
    """The mean of seeds, half of its interval, and in brackets every seed."""
    seeds, half = list(seeds), (ends[1] - ends[0]) / 2
    about = "" if isnan(half) else f" ±{half:.3f}"
    return f"{sum(seeds) / len(seeds):.3f}{about} ({', '.join(f'{seed:.{digits}f}' for seed in seeds)})"


def findings_of(*names: str) -> Table:
    """What the runs say about some experiments: how many there are, and a bullet per finding; nothing without runs."""

    def lines(runs: PaperRuns, page: str) -> Iterator[str]:
        parts = [part for name in names for part in find_experiment(name).parts(runs.scale)]
        asked = {cell.run for part in parts for cell in part.cells}
        done = {record.run for part in parts for record in runs.records(part.label)}
        if not done:
            return
        yield f"{len(done)} of {len(asked)} runs are there."
        yield ""
        for one in (finding for name in names for finding in find_experiment(name).find(runs)):
            text = one.ours if one.ours.startswith(("yes", "no", "open")) else f"{one.verdict}: {one.ours}"
            text = f"{text[:1].upper()}{text[1:]}. *{one.rule}.*" if one.tested else f"Not measured: {one.evidence}."
            yield f"- **{one.question}** {text}"

    return lines
