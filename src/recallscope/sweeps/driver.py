"""The driver: takes what a plan lacks, claims it run by run, hands it to an engine, and writes down what became of it.

It is the only one that writes the index. It holds no state that matters: killed at any moment, it is started again with
the same command and goes on.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field

from recallscope.records import RunRecord
from recallscope.store import Claim, Failure, RunStore, extend_index
from recallscope.store.claims import LEASE_SECONDS
from recallscope.store.damaged import set_aside
from recallscope.store.run_store import CHECKPOINT
from recallscope.sweeps.engines import Died, Engine, Event, Job, Moved
from recallscope.sweeps.grids import Cell
from recallscope.sweeps.plan import Plan
from recallscope.sweeps.stopping import stop_on_signals
from recallscope.sweeps.view import View

TRIES = 3
POLL = 0.2  # seconds an engine may sleep before the driver looks around
LOOK = 0.5  # seconds between looks at runs that others hold
PUBLISH = 30.0  # seconds between new index files


@dataclass(frozen=True)
class Outcome:
    """What a sweep came to."""

    done: int  # finished by this sweep
    skipped: int  # finished before, or by another at the same time
    failed: int  # died three times, now or in an earlier sweep
    seconds: float
    interrupted: bool = False


@dataclass
class _Running:
    cell: Cell
    claim: Claim
    checkpoint: int  # its time when the try began


@dataclass
class Driver:
    """One sweep over one store."""

    store: RunStore
    engine: Engine
    plan: Plan
    view: View
    weights: bool = False
    retry_failed: bool = False
    lease_seconds: float = LEASE_SECONDS
    stop: threading.Event = field(default_factory=threading.Event)

    _queue: deque[Cell] = field(default_factory=deque)
    _running: dict[str, _Running] = field(default_factory=dict)
    _elsewhere: dict[str, Cell] = field(default_factory=dict)  # others hold these
    _tries: Counter[str] = field(default_factory=Counter)
    _unpublished: list[RunRecord | Failure] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)

    def run(self) -> Outcome:
        """Work until nothing is missing, or until told to stop."""
        self._began, self._began_at = time.monotonic(), time.time()
        self._queue.extend(self.plan.missing)
        self._counts.update(skipped=len(self.plan.done), failed=len(self.plan.failed))
        beat = look = published = self._began
        try:
            with stop_on_signals(self.stop):
                self.view.begin(self.plan)
                while (self._queue or self._running or self._elsewhere) and not self.stop.is_set():
                    self._fill()
                    for event in self.engine.wait(POLL):
                        self._hear(event)
                    now = time.monotonic()
                    if now - beat > self.lease_seconds / 6:
                        beat = now
                        self._renew()
                    if now - look > LOOK:
                        look = now
                        self._look_elsewhere()
                    if now - published > PUBLISH:
                        published = now
                        self._publish()
                    self.view.tick()
        finally:
            self.engine.close()
            for running in self._running.values():
                running.claim.release()
            self._publish()
            self.view.close()
        return Outcome(
            done=self._counts["done"],
            skipped=self._counts["skipped"],
            failed=self._counts["failed"],
            seconds=time.monotonic() - self._began,
            interrupted=self.stop.is_set() and bool(self._queue or self._running or self._elsewhere),
        )

    def _fill(self) -> None:
        """Start as many runs as there are free slots and runs nobody holds."""
        while self._queue and len(self._running) < self.engine.slots:
            cell = self._queue.popleft()
            if self._settled(cell):
                continue
            claim = self.store.claim(cell.run, self.lease_seconds, weights=self.weights)
            if claim is None:
                self._elsewhere[cell.run] = cell
                continue
            saved = self._checkpoint_time(cell.run)
            self._running[cell.run] = _Running(cell, claim, saved)
            self.engine.start(Job(cell.run, cell.spec, self.weights))
            self.view.started(cell)

    def _settled(self, cell: Cell) -> bool:
        """Count a run that another finished, or gave up, since the plan was made."""
        if self.store.finished(cell.run, weights=self.weights):
            record = self.store.get(cell.run)
            assert record is not None
            self._counts["skipped"] += 1
            self._unpublished.append(record)
            self.view.finished(cell, record, by_another=True)
            return True
        failure = self.store.failure(cell.run)
        if failure and (not self.retry_failed or failure.at >= self._began_at):
            self._counts["failed"] += 1
            self.view.failed(cell, failure.reason)
            return True
        return False

    def _hear(self, event: Event) -> None:
        running = self._running.get(event.run)
        if running is None:
            return
        if isinstance(event, Moved):
            self.view.moved(running.cell, event.step, event.total_steps)
        elif self.store.finished(event.run, weights=self.weights):  # also if it died just after writing its record
            self._finish(running)
        else:
            self._mourn(running, event if isinstance(event, Died) else Died(event.run, "left no record", ""))

    def _finish(self, running: _Running) -> None:
        record = self.store.get(running.cell.run)
        assert record is not None
        del self._running[running.cell.run]
        self.store.tidy(running.cell.run)
        self._counts["done"] += 1
        self._unpublished.append(record)
        self.view.finished(running.cell, record)

    def _mourn(self, running: _Running, death: Died) -> None:
        """Try again from the last checkpoint, or give up after three tries and say so."""
        cell, run = running.cell, running.cell.run
        del self._running[run]
        self._tries[run] += death.begun
        if self._tries[run] < TRIES:
            if self._tries[run] == TRIES - 1 and self._checkpoint_time(run) == running.checkpoint != 0:
                set_aside(
                    self.store.root,
                    self.store.folder(run) / CHECKPOINT,
                    "tries that began from it died without getting further",
                )
            self._queue.appendleft(cell)
            self.view.retried(cell, death.reason)
        else:
            failure = Failure(
                run=run,
                spec=cell.spec,
                tries=self._tries[run],
                reason=death.reason,
                stderr=death.stderr,
                at=time.time(),
            )
            self.store.put_failure(failure)
            self._counts["failed"] += 1
            self._unpublished.append(failure)
            self.view.failed(cell, death.reason)
        running.claim.release()

    def _renew(self) -> None:
        """Keep the leases; a run that was taken from us while this machine slept is left to its new holder."""
        for run, running in list(self._running.items()):
            if not running.claim.renew() and not self.store.finished(run, weights=self.weights):
                self.engine.cancel(run)
                del self._running[run]
                self._elsewhere[run] = running.cell

    def _look_elsewhere(self) -> None:
        for run, cell in list(self._elsewhere.items()):
            if self._settled(cell):
                del self._elsewhere[run]
            elif len(self._running) < self.engine.slots:  # perhaps its holder is dead: the claim decides
                del self._elsewhere[run]
                self._queue.append(cell)

    def _publish(self) -> None:
        """A new index. It is a convenience: if it cannot be written, the sweep goes on, and readers do without."""
        if self._unpublished:
            with contextlib.suppress(OSError, sqlite3.Error):
                extend_index(self.store, self._unpublished)
                self._unpublished.clear()

    def _checkpoint_time(self, run: str) -> int:
        try:
            return (self.store.folder(run) / CHECKPOINT).stat().st_mtime_ns
        except FileNotFoundError:
            return 0
