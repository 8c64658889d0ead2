"""The driver: leases the runs that a plan lacks one by one, hands them to an engine, and records what became of them.

It is the only writer of the index. It holds no state that matters: killed at any moment, it is started again with the
same command and resumes.
"""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import sqlite3
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from recallscope.atomic import is_storage_fault
from recallscope.records import RunRecord
from recallscope.runs.engine import Died, Engine, EngineError, Event, Halted, Job, Moved, Refused
from recallscope.runs.grid import Cell, Grid
from recallscope.runs.index import extend_index
from recallscope.runs.leases import LEASE_SECONDS, MOST_SECONDS, Failure, Lease
from recallscope.runs.local import InlineEngine, LocalEngine, local_slots
from recallscope.runs.plan import Plan, make_plan
from recallscope.runs.store import CHECKPOINT, FAILURE, RunStore, set_aside
from recallscope.runs.views import View

TRIES = 3
POLL = 0.2  # seconds an engine may wait for events
CHECK = 0.5  # seconds between looks at runs that others hold
PUBLISH = 30.0  # seconds between new index files
REFUSALS = 3  # runs that workers refuse for one reason, before any has begun: then no run will


@dataclass(frozen=True)
class Outcome:
    """What a sweep came to."""

    done: int  # finished by this sweep
    skipped: int  # finished before, or by another at the same time
    failed: int  # given up, now or in an earlier sweep
    seconds: float
    interrupted: bool = False


@dataclass
class _Running:
    cell: Cell
    lease: Lease
    checkpoint: int  # its time when the try began


@dataclass
class Driver:
    """One sweep over one store."""

    store: RunStore
    engine: Engine
    plan: Plan
    view: View
    weights: bool = False
    lease_seconds: float = LEASE_SECONDS
    stop: threading.Event = field(default_factory=threading.Event)

    _queue: deque[Cell] = field(default_factory=deque)
    _running: dict[str, _Running] = field(default_factory=dict)
    _elsewhere: dict[str, Cell] = field(default_factory=dict)  # others hold these
    _tries: Counter[str] = field(default_factory=Counter)
    _refused: dict[str, str] = field(default_factory=dict)  # why, until any run has begun
    _any_begun: bool = False
    _unpublished: list[str] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)

    def run(self) -> Outcome:
        """Work until nothing is missing, or until told to stop."""
        self._began = time.monotonic()
        self._queue.extend(self.plan.missing)
        self._counts.update(skipped=len(self.plan.done), failed=len(self.plan.failed))
        renew, check, publish = (self._began + wait for wait in (self.lease_seconds / 6, CHECK, PUBLISH))
        try:
            with stop_on_signals(self.stop):
                self.view.begin(self.plan)
                for cell in self.plan.done:
                    self.store.tidy_leftovers(cell.run)
                while (self._queue or self._running or self._elsewhere) and not self.stop.is_set():
                    self._fill()
                    for event in self.engine.wait(POLL):
                        self._on_event(event)
                    now = time.monotonic()
                    if now > renew:
                        renew = now + self.lease_seconds / 6
                        self._renew()
                    if now > check:
                        check = now + CHECK
                        self._check_elsewhere()
                    if now > publish:
                        self._publish()
                        spent = time.monotonic() - now  # the index of a large store must not take all our time
                        publish = now + max(PUBLISH, 20 * spent)
                    self.view.tick()
        except OSError as error:
            if not is_storage_fault(error, self.store.root):
                raise
            raise _stopped(f"{error.filename or self.store.root}: {error.strerror}") from error
        finally:
            self.engine.close()
            for running in self._running.values():
                running.lease.release()
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
            lease = self.store.lease(cell.run, self.lease_seconds, weights=self.weights)
            if lease is None:
                self._elsewhere[cell.run] = cell
                continue
            self._running[cell.run] = _Running(cell, lease, self._checkpoint_time(cell.run))
            self.engine.start(Job(cell.run, cell.spec, self.weights))
            self.view.started(cell)

    def _settled(self, cell: Cell) -> bool:
        """Count a run that another finished, or gave up, since the plan was made."""
        if record := self.store.result(cell.run, weights=self.weights):
            self._counts["skipped"] += 1
            self.store.tidy_leftovers(cell.run)
            self._unpublished.append(cell.run)
            self.view.finished(cell, record, by_another=True)
            return True
        failure = self.store.failure(cell.run)
        if failure and failure != self.plan.retried.get(cell.run):  # a note that is new, whatever its time
            self._counts["failed"] += 1
            self.view.failed(cell, failure.reason)
            return True
        return False

    def _on_event(self, event: Event) -> None:
        running = self._running.get(event.run)
        if running is None:
            return
        if isinstance(event, Halted):
            raise _stopped(event.reason)
        if isinstance(event, Refused):
            self._refuse(running, event)
            return
        self._any_begun = self._any_begun or not isinstance(event, Died) or event.begun
        if isinstance(event, Moved):
            self.view.moved(running.cell, event.step, event.total_steps)
        elif record := self.store.result(event.run, weights=self.weights):  # also if it died just after writing it
            self._finish(running, record)
        else:
            self._retry_or_fail(running, event if isinstance(event, Died) else Died(event.run, "left no record", ""))

    def _finish(self, running: _Running, record: RunRecord) -> None:
        del self._running[running.cell.run]
        self.store.tidy(running.cell.run)
        self._counts["done"] += 1
        self._unpublished.append(record.run)
        self.view.finished(running.cell, record)

    def _retry_or_fail(self, running: _Running, death: Died) -> None:
        """Try again from the last checkpoint, or give up after three tries."""
        run = running.cell.run
        self._tries[run] += death.begun
        if self._tries[run] >= TRIES:
            self._fail(running, death.reason, death.stderr)
            return
        del self._running[run]
        if self._tries[run] == TRIES - 1 and self._checkpoint_time(run) == running.checkpoint != 0:
            reason = "tries that began from it died without getting further"
            set_aside(self.store.root, self.store.folder(run) / CHECKPOINT, reason)
        self._queue.appendleft(running.cell)
        self.view.retried(running.cell, death.reason)
        running.lease.release()

    def _refuse(self, running: _Running, event: Refused) -> None:
        """Give a run up whose code cannot be imported or used; stop if no run so far could begin."""
        run, reason = running.cell.run, event.reason
        self._tries[run] += 1
        self._any_begun = self._any_begun or event.begun
        self._fail(running, f"was stopped: {reason}" if event.begun else f"could not begin: {reason}", "")
        self._refused[run] = reason
        enough = len(self._refused) >= max(REFUSALS, 2 * self.engine.slots)
        if enough and not self._any_begun and len(set(self._refused.values())) == 1:
            for refused in self._refused:  # the fault is not the runs': they are to be tried again next time
                (self.store.folder(refused) / FAILURE).unlink(missing_ok=True)
            raise EngineError(f"no worker can begin a run, and the sweep is stopped: {reason}.")

    def _fail(self, running: _Running, reason: str, stderr: str) -> None:
        cell, tries = running.cell, self._tries[running.cell.run]
        spec = cell.spec.model_dump(mode="json")
        failure = Failure(run=cell.run, spec=spec, tries=tries, reason=reason, stderr=stderr, at=time.time())
        self.store.put_failure(failure)
        del self._running[cell.run]
        self._counts["failed"] += 1
        self.view.failed(cell, reason)
        running.lease.release()

    def _renew(self) -> None:
        """Renew the leases; a run that was taken from us while this machine slept is left to its new holder."""
        for run, running in list(self._running.items()):
            if not running.lease.renew() and not self.store.finished(run, weights=self.weights):
                self.engine.cancel(run)
                del self._running[run]
                self._elsewhere[run] = running.cell

    def _check_elsewhere(self) -> None:
        """Take note of runs that others finished, and queue those whose holder may be dead."""
        for run, cell in list(self._elsewhere.items()):
            if self._settled(cell):
                del self._elsewhere[run]
            elif len(self._running) < self.engine.slots:  # trying to lease it decides
                del self._elsewhere[run]
                self._queue.append(cell)

    def _publish(self) -> None:
        """Write a new index. If that fails, the sweep continues, and readers do without."""
        if self._unpublished:
            with contextlib.suppress(OSError, sqlite3.Error):
                extend_index(self.store, self._unpublished)
                self._unpublished.clear()

    def _checkpoint_time(self, run: str) -> int:
        try:
            return (self.store.folder(run) / CHECKPOINT).stat().st_mtime_ns
        except FileNotFoundError:
            return 0


def _stopped(reason: str) -> EngineError:
    return EngineError(
        f"the disk cannot be written, and the sweep is stopped: {reason}. No run is marked failed, and what was "
        f"finished is kept. Make room, or mend the disk, and the same command resumes."
    )


@contextlib.contextmanager
def stop_on_signals(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask for a stop between two steps of work; a second Ctrl-C interrupts on the spot."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, _: object) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_sweep(
    grid: Grid | Iterable[Cell],
    store: RunStore | Path | str,
    *,
    workers: int | None = None,
    engine: Engine | Literal["local", "ray"] = "local",
    device: str = "auto",
    slots_per_gpu: int | None = None,
    address: str = "auto",
    view: View | None = None,
    plan: Plan | None = None,
    weights: bool = False,
    retry_failed: bool = False,
    lease_seconds: float = LEASE_SECONDS,
) -> Outcome:
    """Do every run of the grid that the store lacks, and return when none is missing.

    Doing it twice does nothing the second time; a wider grid runs only its new cells. Runs go to processes of this
    machine, one per core or `workers` of them (on GPUs `slots_per_gpu` each), or to the Ray cluster at `address`. With
    `workers=0` they are done here, one after another, without another process.
    `weights` keeps each run's weights beside its record. A plan that was made already is used as it is.
    """
    if not 1 <= lease_seconds <= MOST_SECONDS:
        raise ValueError(f"lease_seconds={lease_seconds:g} is outside 1..{MOST_SECONDS:.0f}.")
    home = store if isinstance(store, RunStore) else RunStore(store, create=True)
    if plan is None:
        cells = grid.cells() if isinstance(grid, Grid) else grid
        plan = make_plan(cells, home, weights=weights, retry_failed=retry_failed)
    if plan.missing:
        home.check_writable()
    if isinstance(engine, str):
        engine = _engine(engine if plan.missing else "local", home, workers, device, slots_per_gpu, address)
        if plan.missing and importlib.util.find_spec("torch") is None:
            raise ModuleNotFoundError("torch", name="torch")
    return Driver(
        store=home, engine=engine, plan=plan, view=view or View(), weights=weights, lease_seconds=lease_seconds
    ).run()


def _engine(
    name: str, store: RunStore, workers: int | None, device: str, slots_per_gpu: int | None, address: str
) -> Engine:
    if name == "local" and workers == 0:
        return InlineEngine(store, local_slots(1, None, device)[0].device)
    if name == "local":
        return LocalEngine(store, local_slots(workers, slots_per_gpu, device))
    from recallscope.runs.ray_cluster import RayEngine

    return RayEngine(store, address, workers, slots_per_gpu)
