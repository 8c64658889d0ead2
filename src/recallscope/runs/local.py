"""Engines of this machine: one worker process per slot, with one torch thread each; or none (`--workers 0`).

Workers exchange JSON lines with the driver. They are forked from a process that has torch loaded. A worker's own exit
is watched, not only its pipe, and it is ended with everything it started.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import selectors
import signal
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from recallscope.runs.engine import WORKER_ENVIRONMENT, Died, EngineError, Event, Job, Moved, event_of
from recallscope.runs.forkserver import ForkServer, ForkServerError, fork_server
from recallscope.runs.store import RunStore

STDERR_READ = 8_000  # bytes from the end
DEAD_STARTS = 3  # workers that die before their first run, one after another: then none will live
PATIENCE = 5.0  # seconds for a worker to exit before it is killed


@dataclass(frozen=True)
class Slot:
    """A place for one worker: its torch device, and the GPUs its environment shows."""

    device: str = "cpu"
    environment: dict[str, str] = field(default_factory=dict)


def local_slots(workers: int | None = None, slots_per_gpu: int | None = None, device: str = "auto") -> list[Slot]:
    """Slots for the local engine: on the GPUs if there are any and `device` allows, else one per core.

    `workers` sets how many there are; on GPUs it is a limit, as `slots_per_gpu` sets the number.
    """
    for name, value in (("workers", workers), ("slots_per_gpu", slots_per_gpu)):
        if value is not None and not 1 <= value <= 1024:
            raise ValueError(f"{name}={value} is outside 1..1024.")
    if device not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device={device!r} is none of auto, cpu and cuda.")
    found = _gpus() if device != "cpu" else []
    if device == "cuda" and not found:
        raise ValueError("device=cuda, and this machine shows no GPU. Use --device cpu.")
    if not found:
        if slots_per_gpu is not None:
            raise ValueError("slots_per_gpu is for GPUs, and this machine shows none. Use --workers.")
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return [Slot()] * (workers or cores)
    # round robin over the GPUs, so that a limit on the workers still uses all of them
    places = [Slot("cuda:0", {"CUDA_VISIBLE_DEVICES": name}) for _ in range(slots_per_gpu or 1) for name in found]
    return places[: workers or len(places)]


def _gpus() -> list[str]:
    """GPUs this process may use, as CUDA_VISIBLE_DEVICES spells them; found without loading torch."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return [name for name in visible.split(",") if name.strip() not in ("", "-1")]
    found = Path("/proc/driver/nvidia/gpus")
    return [str(index) for index in range(len(list(found.iterdir())))] if found.is_dir() else []


@dataclass
class _Worker:
    """A process and the job it has."""

    pid: int
    server: ForkServer
    stdin: int
    stdout: int
    stderr: IO[bytes]
    job: Job | None = None
    begun: bool = False  # with the job
    unread: bytes = b""
    stderr_from: int = 0  # where the job's part begins

    def kill(self) -> None:
        """End the process and whatever it has started; its group has its pid."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def exit_code(self, seconds: float) -> int | None:
        """Its exit code, as soon as it is known; None if the time is up."""
        deadline = time.monotonic() + seconds
        while (code := self.server.exit_code(self.pid)) is None and self.server.alive:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            select.select([self.server], [], [], min(left, 0.05))  # another engine may read what we wait for
            self.server.collect()
        return code


@dataclass
class LocalEngine:
    """Workers on this machine, one per slot, started when first needed and again when they die."""

    store: RunStore
    places: list[Slot]
    _workers: dict[int, _Worker] = field(default_factory=dict)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
    _watched: set[ForkServer] = field(default_factory=set)
    _dead_starts: int = 0

    @property
    def slots(self) -> int:
        """Jobs that may run at once."""
        return len(self.places)

    def start(self, job: Job) -> None:
        """Hand a job to an idle worker, or to a new one."""
        free = (index for index in range(self.slots) if index not in self._workers or self._workers[index].job is None)
        index = next(free)
        worker = self._workers.get(index) or self._spawn(index)
        worker.job, worker.begun = job, False
        worker.stderr_from = os.fstat(worker.stderr.fileno()).st_size
        with contextlib.suppress(OSError):  # it died while idle; the next wait notices, and the job is started again
            _write_all(worker.stdin, json.dumps(job.message()).encode() + b"\n")

    def wait(self, seconds: float) -> list[Event]:
        """Read the workers' messages, and notice those that died."""
        events: list[Event] = []
        if not self._workers:
            time.sleep(min(seconds, 0.05))
            return events
        for key, _ in self._selector.select(seconds):
            if isinstance(key.fileobj, ForkServer):
                key.fileobj.collect()
                if not key.fileobj.alive:
                    self._selector.unregister(key.fileobj)
                    self._watched.discard(key.fileobj)
                continue
            worker = self._workers[key.data]
            data = os.read(worker.stdout, 2**16)
            if not data:
                events += self._reap(key.data)
                continue
            events += self._read(worker, data)
        for index, worker in list(self._workers.items()):  # ended, though a process it started may hold its stdout
            if not worker.server.alive or worker.server.exit_code(worker.pid) is not None:
                events += self._reap(index)
        return events

    def cancel(self, run: str) -> None:
        """Kill the worker that has the run; its slot gets another."""
        for index, worker in list(self._workers.items()):
            if worker.job and worker.job.run == run:
                worker.job = None
                worker.kill()
                self._reap(index)

    def close(self) -> None:
        """End all workers: they exit when their stdin closes, and are killed if they do not."""
        for worker in self._workers.values():
            worker.job = None
            os.close(worker.stdin)
            worker.stdin = -1
        deadline = time.monotonic() + PATIENCE
        for index in list(self._workers):
            self._reap(index, max(0.0, deadline - time.monotonic()))
        self._selector.close()

    def pids(self) -> list[int]:
        """The workers' process ids."""
        return [worker.pid for worker in self._workers.values()]

    def _spawn(self, index: int) -> _Worker:
        place = self.places[index]
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the worker is reaped)
        stdin, ours_in = os.pipe()
        ours_out, stdout = os.pipe()
        try:
            environment = os.environ | WORKER_ENVIRONMENT
            server = fork_server(environment)
            arguments = [str(self.store.root.absolute()), place.device]
            pid = server.start(arguments, environment | place.environment, (stdin, stdout, stderr.fileno()))
        except ForkServerError as error:
            os.close(ours_in)
            os.close(ours_out)
            stderr.close()
            raise EngineError(f"no worker can start: loading torch failed.\n{error}") from error
        finally:
            os.close(stdin)
            os.close(stdout)
        worker = self._workers[index] = _Worker(pid, server, ours_in, ours_out, stderr)
        self._selector.register(ours_out, selectors.EVENT_READ, index)
        if server not in self._watched:
            self._selector.register(server, selectors.EVENT_READ)
            self._watched.add(server)
        return worker

    def _read(self, worker: _Worker, data: bytes) -> list[Event]:
        """The events in what a worker wrote; lines that are not messages about its job are ignored."""
        *lines, worker.unread = (worker.unread + data).split(b"\n")
        events = []
        for line in lines:
            try:
                message = json.loads(line)
                event = event_of(message)
                run = message["run"]
            except (ValueError, KeyError, TypeError):
                continue
            self._dead_starts = 0
            if worker.job is None or run != worker.job.run:
                continue
            worker.begun = True
            if event is not None:
                events.append(event)
                if not isinstance(event, Moved):
                    worker.job = None
        return events

    def _reap(self, index: int, patience: float = PATIENCE) -> list[Event]:
        """Remove a worker that has ended, or is of no use; its job, if it had one, is reported with how it ended."""
        worker = self._workers.pop(index)
        self._selector.unregister(worker.stdout)
        code = worker.exit_code(patience)
        worker.kill()  # its children may live on, or it itself without stdout
        if code is None:
            code = worker.exit_code(PATIENCE)
        os.set_blocking(worker.stdout, False)
        events = []
        with contextlib.suppress(OSError):  # nothing left to read
            while data := os.read(worker.stdout, 2**16):
                events += self._read(worker, data)
        worker.server.forget(worker.pid)
        for descriptor in (worker.stdout, worker.stdin):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        stderr = _tail(worker.stderr, worker.stderr_from)
        worker.stderr.close()
        if worker.job is None:
            return events
        ended = "was lost with the process that starts workers" if code is None else how_it_ended(code)
        if not worker.begun:
            self._dead_starts += 1
            if self._dead_starts >= max(DEAD_STARTS, 2 * self.slots):
                raise EngineError(f"{self._dead_starts} workers died before they began; the last {ended}:\n{stderr}")
        return [*events, Died(worker.job.run, ended, stderr, worker.begun)]


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def how_it_ended(code: int) -> str:
    """A process's exit code in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in signal.valid_signals() and -code < signal.SIGRTMIN else str(-code)
    return f"was killed by {name}" + (" (out of memory, or by hand)" if -code == signal.SIGKILL else "")


def _tail(file: IO[bytes], start: int) -> str:
    size = os.fstat(file.fileno()).st_size
    file.seek(max(start, size - STDERR_READ))
    return file.read().decode(errors="replace").strip()


class _Stopped(BaseException):  # not an Exception: code that catches those must not swallow it
    """The driver wants the run to end now."""


@dataclass
class InlineEngine:
    """Does each job in a thread of this process: for debugging, notebooks and short runs.

    The driver keeps renewing the lease meanwhile. The run ends with this process: a module that crashes the interpreter
    takes the sweep with it, where worker processes would be replaced.
    """

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
