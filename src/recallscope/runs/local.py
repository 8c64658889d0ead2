"""The local engine: one worker process per slot, with one torch thread each. They exchange JSON lines."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from recallscope.runs.engine import WORKER_ENVIRONMENT, Died, EngineError, Event, Finished, Halted, Job, Moved, Refused
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

    process: subprocess.Popen[bytes]
    stderr: IO[bytes]
    job: Job | None = None
    begun: bool = False  # with the job
    unread: bytes = b""
    stderr_from: int = 0  # where the job's part begins


@dataclass
class LocalEngine:
    """Workers on this machine, one per slot, started when first needed and again when they die."""

    store: RunStore
    places: list[Slot]
    _workers: dict[int, _Worker] = field(default_factory=dict)
    _selector: selectors.BaseSelector = field(default_factory=selectors.DefaultSelector)
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
        assert worker.process.stdin is not None
        with contextlib.suppress(OSError):  # it died while idle; the next wait notices, and the job is started anew
            worker.process.stdin.write(json.dumps(job.message()).encode() + b"\n")
            worker.process.stdin.flush()

    def wait(self, seconds: float) -> list[Event]:
        """Read the workers' messages, and notice those that died."""
        events: list[Event] = []
        if not self._workers:
            time.sleep(min(seconds, 0.05))
            return events
        for key, _ in self._selector.select(seconds):
            index: int = key.data
            worker = self._workers[index]
            data = os.read(key.fd, 2**16)
            if not data:
                events += self._reap(index)
                continue
            *lines, worker.unread = (worker.unread + data).split(b"\n")
            for line in lines:
                events += self._on_message(worker, json.loads(line))
        return events

    def cancel(self, run: str) -> None:
        """Kill the worker that has the run; its slot gets another."""
        for index, worker in list(self._workers.items()):
            if worker.job and worker.job.run == run:
                worker.job = None
                worker.process.kill()
                self._reap(index)

    def close(self) -> None:
        """End all workers: they exit when their stdin closes, and are killed if they do not."""
        for worker in self._workers.values():
            worker.job = None
            assert worker.process.stdin is not None
            with contextlib.suppress(OSError):
                worker.process.stdin.close()
        deadline = time.monotonic() + PATIENCE
        for index, worker in list(self._workers.items()):
            try:
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
            self._reap(index)
        self._selector.close()

    def pids(self) -> list[int]:
        """The workers' process ids."""
        return [worker.process.pid for worker in self._workers.values()]

    def _spawn(self, index: int) -> _Worker:
        place = self.places[index]
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed when the worker is reaped)
        process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "recallscope.runs.worker", str(self.store.root.absolute()), place.device],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=os.environ | WORKER_ENVIRONMENT | place.environment,
            start_new_session=True,  # Ctrl-C is the driver's to handle
        )
        worker = self._workers[index] = _Worker(process, stderr)
        assert process.stdout is not None
        self._selector.register(process.stdout, selectors.EVENT_READ, index)
        return worker

    def _on_message(self, worker: _Worker, message: dict[str, Any]) -> list[Event]:
        self._dead_starts = 0
        if worker.job is None or message["run"] != worker.job.run:
            return []
        worker.begun = True
        if message["event"] == "finished":
            worker.job = None
            return [Finished(message["run"])]
        if message["event"] == "refused":
            worker.job = None
            return [Refused(message["run"], message["reason"])]
        if message["event"] == "halted":
            worker.job = None
            return [Halted(message["run"], message["reason"])]
        if message["event"] == "moved":
            return [Moved(message["run"], message["step"], message["total_steps"])]
        return []

    def _reap(self, index: int) -> list[Event]:
        """Remove a dead worker; its job, if it had one, is reported with how it ended."""
        worker = self._workers.pop(index)
        assert worker.process.stdout is not None
        assert worker.process.stdin is not None
        self._selector.unregister(worker.process.stdout)
        try:
            code = worker.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:  # it closed its stdout and lives: of no use
            worker.process.kill()
            code = worker.process.wait()
        worker.process.stdout.close()
        with contextlib.suppress(OSError):
            worker.process.stdin.close()
        stderr = _tail(worker.stderr, worker.stderr_from)
        worker.stderr.close()
        if worker.job is None:
            return []
        if not worker.begun:
            self._dead_starts += 1
            if self._dead_starts >= max(DEAD_STARTS, 2 * self.slots):
                raise EngineError(
                    f"{self._dead_starts} workers died before they began; the last {how_it_ended(code)}:\n{stderr}"
                )
        return [Died(worker.job.run, how_it_ended(code), stderr, worker.begun)]


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
