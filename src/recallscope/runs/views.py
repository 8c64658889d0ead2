"""What a sweep shows while it runs: plain lines, or on a terminal a grid that fills in."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Literal

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from recallscope.records import RunRecord
from recallscope.runs.grid import Cell
from recallscope.runs.plan import Plan, estimated_cost
from recallscope.specs import flat_fields

State = Literal["missing", "running", "done", "failed"]


def varying_columns(cells: Sequence[Cell]) -> list[str]:
    """Fields in which some runs differ: those of their grids that vary, then others that are needed for it."""
    own = dict.fromkeys(name for cell in cells for name in cell.fields)
    varying = [name for name in own if len({value_of(cell, name) for cell in cells}) > 1]
    keys = [tuple(value_of(cell, name) for name in varying) for cell in cells]
    if len(set(keys)) < len(cells):  # several grids, told apart by what each keeps fixed
        fields = [flat_fields(cell.spec) for cell in cells]
        for name in dict.fromkeys(name for row in fields for name in row if name not in varying):
            more = [(*key, row.get(name)) for key, row in zip(keys, fields, strict=True)]
            if len(set(more)) > len(set(keys)):
                varying, keys = [*varying, name], more
    return varying


def value_of(cell: Cell, name: str) -> Any:
    """The value of a field, of its grid or its spec, as something that can be compared; None if it has none."""
    value = cell.fields[name] if name in cell.fields else flat_fields(cell.spec).get(name)
    return value if isinstance(value, Hashable) else str(value)


class View:
    """What a driver reports. This one shows nothing; others override what they show."""

    def begin(self, plan: Plan) -> None:
        """The sweep starts with this plan."""

    def started(self, cell: Cell) -> None:
        """A worker has the run."""

    def moved(self, cell: Cell, step: int, total_steps: int) -> None:
        """A run has made progress."""

    def finished(self, cell: Cell, record: RunRecord, *, by_another: bool = False) -> None:
        """A run is done, here or by another sweep."""

    def retried(self, cell: Cell, reason: str) -> None:
        """A worker died, and the run is tried again."""

    def failed(self, cell: Cell, reason: str) -> None:
        """A run is given up."""

    def tick(self) -> None:
        """Called several times a second."""

    def close(self) -> None:
        """The sweep is over."""


@dataclass
class Tally:
    """States of all cells; costs of what was done here and of what is left."""

    states: dict[str, State] = field(default_factory=dict)
    accuracy: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)  # of running cells, how far each is
    began: float = field(default_factory=time.monotonic)
    _costs: dict[str, float] = field(default_factory=dict)
    _spent: float = 0.0

    @classmethod
    def of(cls, plan: Plan) -> Tally:
        """The states of a plan."""
        tally = cls(accuracy=dict(plan.accuracy))
        for state, cells in (("missing", plan.missing), ("done", plan.done), ("failed", plan.failed)):
            tally.states |= dict.fromkeys((cell.run for cell in cells), state)  # type: ignore[arg-type]
        tally._costs = {cell.run: estimated_cost(cell.spec) for cell in plan.missing}
        return tally

    def move(self, cell: Cell, state: State, *, here: bool = True) -> None:
        """Change a cell's state; work done by another sweep says nothing about our speed."""
        self.states[cell.run] = state
        self.shares.pop(cell.run, None)
        if state in ("done", "failed"):
            cost = self._costs.pop(cell.run, 0.0)
            self._spent += cost if here and state == "done" else 0.0

    def counts(self) -> Counter[str]:
        """Cells per state."""
        return Counter(self.states.values())

    def seconds_left(self) -> float | None:
        """By the speed so far; None before there is any."""
        under_way = sum(self._costs.get(run, 0.0) * share for run, share in self.shares.items())
        done = self._spent + under_way
        if done <= 0:
            return None
        left = sum(self._costs.values()) - under_way
        return (time.monotonic() - self.began) * left / done


class TallyView(View):
    """A view that keeps count."""

    def __init__(self) -> None:
        self.tally = Tally()

    def begin(self, plan: Plan) -> None:
        """Start counting."""
        self.tally = Tally.of(plan)

    def started(self, cell: Cell) -> None:
        """One more is running."""
        self.tally.move(cell, "running")

    def moved(self, cell: Cell, step: int, total_steps: int) -> None:
        """Keep how far it is."""
        self.tally.shares[cell.run] = step / max(total_steps, 1)

    def finished(self, cell: Cell, record: RunRecord, *, by_another: bool = False) -> None:
        """One more is done."""
        self.tally.accuracy[cell.run] = record.test_accuracy
        self.tally.move(cell, "done", here=not by_another)

    def retried(self, cell: Cell, reason: str) -> None:
        """It is missing again."""
        self.tally.move(cell, "missing")

    def failed(self, cell: Cell, reason: str) -> None:
        """One more has failed."""
        self.tally.move(cell, "failed")


class PlainView(TallyView):
    """One line per run that ends, on any stream; and if `every` is given, one about a run under way so often."""

    def __init__(self, stream: IO[str], every: float | None = None) -> None:
        super().__init__()
        self.stream, self.every = stream, every
        self.written = time.monotonic()
        self.fields: list[str] = []

    def begin(self, plan: Plan) -> None:
        """Print what is to be done."""
        super().begin(plan)
        self.fields = varying_columns([*plan.done, *plan.missing, *plan.failed])
        before = f", {len(plan.failed)} failed before" if plan.failed else ""
        self._write(
            f"{plan.total} run{'s' * (plan.total != 1)}: {len(plan.done)} done, {len(plan.missing)} to do{before}"
        )
        for fault in plan.faults:
            aside = f"set aside as {fault.moved_to}, " if fault.moved_to else ""
            self._write(f"damaged: {fault.path} ({fault.reason}); {aside}to be run again")

    def moved(self, cell: Cell, step: int, total_steps: int) -> None:
        """Print how far it is, if nothing was printed for a while."""
        super().moved(cell, step, total_steps)
        if self.every is not None and time.monotonic() - self.written > self.every:
            self._line("step", cell, f"{step:,} of {total_steps:,}")

    def finished(self, cell: Cell, record: RunRecord, *, by_another: bool = False) -> None:
        """Print the result."""
        super().finished(cell, record, by_another=by_another)
        whose = "  (by another sweep)" if by_another else f"  {record.seconds:.1f} s"
        flag = f"  {record.flag}" if record.flag else ""
        self._line("done", cell, f"accuracy {record.test_accuracy:.4f}{flag}{whose}")

    def retried(self, cell: Cell, reason: str) -> None:
        """Print that a worker died."""
        super().retried(cell, reason)
        self._line("retry", cell, f"its worker {reason}")

    def failed(self, cell: Cell, reason: str) -> None:
        """Print that a run is given up."""
        super().failed(cell, reason)
        self._line("FAILED", cell, f"its worker {reason}")

    def _line(self, what: str, cell: Cell, more: str) -> None:
        counts = self.tally.counts()
        ended, total = counts["done"] + counts["failed"], sum(counts.values())
        left = f"  left {clock(self.tally.seconds_left())}" if ended < total else ""
        fields = " ".join(f"{name}={value_of(cell, name)}" for name in self.fields or cell.fields) or "the only run"
        self._write(f"[{ended}/{total}] {what:6} {cell.run[:8]}  {fields}  {more}{left}")

    def _write(self, line: str) -> None:
        self.written = time.monotonic()
        self.stream.write(line + "\n")
        self.stream.flush()


def progress_view(cells: Sequence[Cell], title: str, *, stream: IO[str], live: bool = True) -> View:
    """The live grid if it is wanted and stdout is a terminal, else plain lines on the stream."""
    if not live or not sys.stdout.isatty():
        return PlainView(stream)
    return LiveView(cells, Console(), title)


def clock(seconds: float | None) -> str:
    """12 s as 0:12, two hours as 2:00:00, nothing as a dash."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


REFRESH = 0.25  # seconds
STYLES = {"missing": "dim", "running": "yellow", "done": "green", "failed": "bold red"}


class LiveView(TallyView):
    """The two longest axes as a grid of cells, with counts and the time left below.

    Seeds and further axes share a cell, which shows the best of them.
    """

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
