"""The live view: the two longest axes as a table of cells that fill in, with counts and the time left below."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from recallscope.runs.grid import Cell
from recallscope.runs.plan import Plan
from recallscope.runs.views import TallyView, clock, value_of, varying_columns

REFRESH = 0.25  # seconds
STYLES = {"missing": "dim", "running": "yellow", "done": "green", "failed": "bold red"}


class LiveView(TallyView):
    """A grid of cells on a terminal; seeds and further axes share a cell, which shows the best of them."""

    def __init__(self, cells: Sequence[Cell], console: Console, title: str = "") -> None:
        super().__init__()
        self.console, self.title = console, title
        self.notes: list[str] = []
        self.rows, self.columns, self.places = _places(cells)
        self.live = Live(console=console, auto_refresh=False, transient=False)
        self.drawn = 0.0

    def begin(self, plan: Plan) -> None:
        """Start drawing."""
        super().begin(plan)
        self.notes += [f"damaged: {fault.path} ({fault.reason}); to be run again" for fault in plan.faults]
        self.live.start()

    def retried(self, cell: Cell, reason: str) -> None:
        """Add a note."""
        super().retried(cell, reason)
        self.notes.append(f"retry {cell.run[:8]}: its worker {reason}")

    def failed(self, cell: Cell, reason: str) -> None:
        """Add a note; the cell turns red."""
        super().failed(cell, reason)
        self.notes.append(f"FAILED {cell.run[:8]}: its worker {reason}")

    def tick(self) -> None:
        """Draw, a few times a second."""
        if time.monotonic() - self.drawn > REFRESH:
            self.drawn = time.monotonic()
            self.live.update(self.picture(), refresh=True)

    def close(self) -> None:
        """Leave the last state on the screen."""
        if self.live.is_started:
            self.live.update(self.picture(), refresh=True)
            self.live.stop()

    def picture(self) -> Group:
        """What is to be on the screen."""
        counts = self.tally.counts()
        shown = {"done": "done", "running": "running", "failed": "failed", "missing": "to do"}
        line = " · ".join(f"{counts[state]} {name}" for state, name in shown.items())
        left = self.tally.seconds_left() if counts["missing"] or counts["running"] else 0.0
        footer = Text(f"{line} · {clock(time.monotonic() - self.tally.began)} so far, {clock(left)} left")
        parts: list[Any] = [Text(self.title, style="bold")] if self.title else []
        if (
            self.places
            and len(self.columns[1]) * 5 + 12 <= self.console.width
            and len(self.rows[1]) + 8 <= self.console.height
        ):
            parts.append(self._table())
        return Group(*parts, footer, *(Text(note, style="red") for note in self.notes[-5:]))

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
        table.add_column(f"{self.rows[0]} \\ {self.columns[0]}", style="dim")
        for value in self.columns[1]:
            table.add_column(str(value), justify="right", min_width=4)
        for row in self.rows[1]:
            table.add_row(str(row), *(self._cell(self.places.get((row, column), [])) for column in self.columns[1]))
        return table

    def _cell(self, runs: list[str]) -> Text:
        if not runs:
            return Text("")
        states = [self.tally.states.get(run, "missing") for run in runs]
        best = max((self.tally.accuracy[run] for run in runs if run in self.tally.accuracy), default=None)
        state = next(state for state in ("running", "missing", "failed", "done") if state in states)
        if best is not None:
            return Text(f"{best:.2f}".replace("0.", "."), style=STYLES[state])
        if state == "running":
            return Text(f"{100 * max(self.tally.shares.get(run, 0.0) for run in runs):.0f}%", style=STYLES[state])
        return Text({"missing": "·", "failed": "✗", "done": "."}[state], style=STYLES[state])


def _places(
    cells: Sequence[Cell],
) -> tuple[tuple[str, list[Any]], tuple[str, list[Any]], dict[tuple[Any, Any], list[str]]]:
    """The two fields with the most values, seeds aside, as rows and columns; and which runs fall where."""
    fields = varying_columns(cells)
    values = {
        name: sorted({value_of(cell, name) for cell in cells}, key=lambda value: (str(type(value)), value))
        for name in fields
        if name != "seed"
    }
    names = sorted(values, key=lambda name: -len(values[name]))[:2]
    if len(names) < 2:
        names += ["seed"] * ("seed" in fields)
        values["seed"] = sorted({value_of(cell, "seed") for cell in cells}, key=str)
    if len(names) < 2:
        return ("", []), ("", []), {}
    row, column = (name for name in fields if name in names)
    places: dict[tuple[Any, Any], list[str]] = {}
    for cell in cells:
        places.setdefault((value_of(cell, row), value_of(cell, column)), []).append(cell.run)
    return (row, values[row]), (column, values[column]), places
