"""How far a sweep is: states of its cells, and a guess at the time left."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from recallscope.sweeps.cost import estimated_cost
from recallscope.sweeps.grids import Cell
from recallscope.sweeps.plan import Plan

State = Literal["missing", "running", "done", "failed"]


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
        """As a plan finds things."""
        tally = cls(accuracy=dict(plan.accuracy))
        for state, cells in (("missing", plan.missing), ("done", plan.done), ("failed", plan.failed)):
            tally.states |= dict.fromkeys((cell.run for cell in cells), state)  # type: ignore[arg-type]
        tally._costs = {cell.run: estimated_cost(cell.spec) for cell in plan.missing}
        return tally

    def move(self, cell: Cell, state: State, *, here: bool = True) -> None:
        """A cell changes its state; work done by another sweep says nothing about our speed."""
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


def clock(seconds: float | None) -> str:
    """12 s as 0:12, two hours as 2:00:00, nothing as a dash."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
