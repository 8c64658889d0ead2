"""What a sweep shows while it runs: a grid that fills in on a terminal, plain lines anywhere else."""

from __future__ import annotations

from typing import IO, Protocol

from recallscope.records import RunRecord
from recallscope.sweeps.grids import Cell
from recallscope.sweeps.plan import Plan
from recallscope.sweeps.tally import Tally, clock


class View(Protocol):
    """What a driver tells those who watch."""

    def begin(self, plan: Plan) -> None: ...
    def started(self, cell: Cell) -> None: ...
    def moved(self, cell: Cell, step: int, total_steps: int) -> None: ...
    def finished(self, cell: Cell, record: RunRecord, *, by_another: bool = False) -> None: ...
    def retried(self, cell: Cell, reason: str) -> None: ...
    def failed(self, cell: Cell, reason: str) -> None: ...
    def tick(self) -> None: ...
    def close(self) -> None: ...


def in_short(cell: Cell) -> str:
    """The words that tell a cell from the others."""
    return " ".join(f"{name}={value}" for name, value in cell.words.items()) or cell.run[:8]


class SilentView:
    """For callers in Python that look at the store themselves."""

    def begin(self, plan: Plan) -> None:
        """Nothing is shown, here and below."""

    def started(self, cell: Cell) -> None:
        """Nothing."""

    def moved(self, cell: Cell, step: int, total_steps: int) -> None:
        """Nothing."""

    def finished(self, cell: Cell, record: RunRecord, *, by_another: bool = False) -> None:
        """Nothing."""

    def retried(self, cell: Cell, reason: str) -> None:
        """Nothing."""

    def failed(self, cell: Cell, reason: str) -> None:
        """Nothing."""

    def tick(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainView:
    """One line per run that ends, on any stream."""

    def __init__(self, stream: IO[str]) -> None:
        self.stream = stream
        self.tally = Tally()

    def begin(self, plan: Plan) -> None:
        """What is to be done."""
        self.tally = Tally.of(plan)
        self._say(
            f"{plan.total} runs: {len(plan.done)} done, {len(plan.missing)} to do"
            + (f", {len(plan.failed)} failed before" if plan.failed else "")
        )
        for fault in plan.faults:
            self._say(f"damaged: {fault.path} ({fault.reason}); set aside as {fault.moved_to}, to be run again")

    def started(self, cell: Cell) -> None:
        """Not worth a line."""
        self.tally.move(cell, "running")

    def moved(self, cell: Cell, step: int, total_steps: int) -> None:
        """Not worth a line either."""
        self.tally.shares[cell.run] = step / max(total_steps, 1)

    def finished(self, cell: Cell, record: RunRecord, *, by_another: bool = False) -> None:
        """A result."""
        self.tally.move(cell, "done", here=not by_another)
        whose = "  (by another sweep)" if by_another else f"  {record.seconds:.1f} s"
        self._line("done", cell, f"accuracy {record.test_accuracy:.4f}{whose}")

    def retried(self, cell: Cell, reason: str) -> None:
        """A worker died."""
        self.tally.move(cell, "missing")
        self._line("retry", cell, f"its worker {reason}")

    def failed(self, cell: Cell, reason: str) -> None:
        """A run is given up."""
        self.tally.move(cell, "failed")
        self._line("FAILED", cell, f"its worker {reason}")

    def tick(self) -> None:
        """Nothing moves in plain lines."""

    def close(self) -> None:
        """Nothing to put away."""

    def _line(self, what: str, cell: Cell, more: str) -> None:
        counts = self.tally.counts()
        ended, total = counts["done"] + counts["failed"], sum(counts.values())
        left = f"  left {clock(self.tally.seconds_left())}" if ended < total else ""
        self._say(f"[{ended}/{total}] {what:6} {cell.run[:8]}  {in_short(cell)}  {more}{left}")

    def _say(self, line: str) -> None:
        self.stream.write(line + "\n")
        self.stream.flush()
