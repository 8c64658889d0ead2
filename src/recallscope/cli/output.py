"""What commands print: one JSON object, lines, tables, numbers and durations. What they say is made with the result."""

from __future__ import annotations

import json
import sys
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from recallscope.faults import finite, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def print_json(value: Any) -> None:
    """One JSON object on stdout and nothing else; not-a-number becomes null."""
    json.dump(finite(value), sys.stdout, allow_nan=False)
    sys.stdout.write("\n")


def warn(sentence: str) -> None:
    """A sentence on stderr; none if it is empty."""
    if sentence:
        print(f"recallscope: {printable(sentence)}", file=sys.stderr)


def say(text: str) -> None:
    """Text on stdout, whoever wrote it."""
    print(printable(text))


def console(**options: Any) -> Console:
    """A terminal that colours only what is marked."""
    from rich.console import Console

    return Console(highlight=False, **options)


def show(lines: Iterable[str], bold: int = 0, *, to: Console | None = None) -> None:
    """Lines as they are, the first `bold` of them in bold."""
    out = to or console()
    for number, line in enumerate(lines):
        out.print(printable(line), style="bold" if number < bold else None, markup=False)


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: Container[str] = (),
    whole: Container[str] = (),
    bold: Container[int] = (),
    **options: Any,
) -> Table:
    """A table without lines; `left`: columns flush left, `whole`: columns that do not wrap, `bold`: rows in bold."""
    from rich.markup import escape
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="dim", **options)
    for name in columns:
        made.add_column(
            escape(printable(name)), justify="left" if name in left else "right", overflow="fold", no_wrap=name in whole
        )
    for number, row in enumerate(rows):
        made.add_row(*(escape(printable(cell)) for cell in row), style="bold" if number in bold else None)
    return made


def number(value: Any, digits: int = 4) -> str:
    """A dash for what is not a number, such as the loss of a run that diverged."""
    return f"{value:.{digits}f}" if isinstance(value, int | float) and value == value else "-"


def count(value: int | None) -> str:
    """Thousands are separated; a dash for what is unknown."""
    return "-" if value is None else f"{value:,}"
