"""The inline engine (`--workers 0`): one run at a time in this process, for debugging, notebooks and short runs.

The run has a thread of its own, so that the driver keeps renewing its lease. It ends with this process: a module that
crashes the interpreter takes the sweep with it, where worker processes would be replaced.
"""

from __future__ import annotations

import queue
import threading
import traceback
from dataclasses import dataclass, field
from typing import Any

from recallscope.runs.engine import Died, Event, Job, event_of
from recallscope.runs.store import RunStore


class _Stopped(BaseException):  # not an Exception: code that catches those must not swallow it
    """The driver wants the run to end now."""


@dataclass
class InlineEngine:
    """Does each job in a thread of this process."""

    store: RunStore
    device: str = "cpu"
    _events: queue.SimpleQueue[Event] = field(default_factory=queue.SimpleQueue)
    _thread: threading.Thread | None = None
    _stop: threading.Event = field(default_factory=threading.Event)

    slots = 1

    def start(self, job: Job) -> None:
        """Begin the job."""
        if self._thread is not None:
            self._thread.join()  # it has reported its end
        self._stop.clear()
        self._thread = threading.Thread(target=self._work, args=(job,), daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> list[Event]:
        """What has happened since the last call."""
        try:
            events = [self._events.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._events.empty():
            events.append(self._events.get())
        return events

    def cancel(self, run: str) -> None:
        """Stop the run at its next report of progress; no event follows."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        while not self._events.empty():
            self._events.get()

    def close(self) -> None:
        """Stop; the run's checkpoint is on disk."""
        self.cancel("")

    def _work(self, job: Job) -> None:
        from recallscope.runs.worker import do_job

        def report(message: dict[str, Any]) -> None:
            if self._stop.is_set():
                raise _Stopped
            event = event_of(message)
            if event is not None:
                self._events.put(event)

        try:
            do_job(job.run, lambda: job.spec, store=self.store, device=self.device, weights=job.weights, report=report)
        except _Stopped:
            pass
        except Exception as error:
            reason = f"raised {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
            self._events.put(Died(job.run, reason, traceback.format_exc()))
