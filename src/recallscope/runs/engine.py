"""What a driver asks of the machinery that runs jobs. Engines: local processes, this process (inline), Ray."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from recallscope.specs import ARCHITECTURES, TASKS, RunSpec

# Large temporaries are kept instead of being given back to the system after every operation: page faults otherwise
# take half of a worker's time (glibc).
WORKER_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_TRIM_THRESHOLD_": "2000000000",
    "MALLOC_MMAP_THRESHOLD_": "1000000000",
}


@dataclass(frozen=True)
class Job:
    """One run to be done."""

    run: str
    spec: RunSpec
    weights: bool = False  # keep them beside the record

    def message(self) -> dict[str, Any]:
        """The job as plain data, with what another process must import before it can parse the spec.

        Modules are looked for where this process finds them: its folder, and its search path.
        """
        origins = (TASKS.origin(self.spec.task.kind), ARCHITECTURES.origin(self.spec.model.kind))
        return {
            "run": self.run,
            "spec": self.spec.model_dump(mode="json"),
            "weights": self.weights,
            "imports": [origin for origin in dict.fromkeys(origins) if origin],
            "folder": os.getcwd(),
            "path": [entry for entry in sys.path if entry],
        }


@dataclass(frozen=True)
class Moved:
    """A run has made progress."""

    run: str
    step: int
    total_steps: int


@dataclass(frozen=True)
class Finished:
    """A run's record is in the store."""

    run: str


@dataclass(frozen=True)
class Died:
    """A try ended without a record: killed, out of memory, an error."""

    run: str
    reason: str
    stderr: str
    begun: bool = True  # False if the worker died before it began the run, which then is not to blame


@dataclass(frozen=True)
class Refused:
    """A worker cannot begin the run, or go on: its code cannot be imported or used. Another try would end alike."""

    run: str
    reason: str
    begun: bool = False


@dataclass(frozen=True)
class Halted:
    """A run could not write: the disk is full, over quota, read-only or failing. No run is to blame."""

    run: str
    reason: str


Event = Moved | Finished | Died | Refused | Halted


def event_of(message: Mapping[str, Any]) -> Event | None:
    """The event that a worker's message is about, if any."""
    run = message["run"]
    match message["event"]:
        case "moved":
            return Moved(run, message["step"], message["total_steps"])
        case "finished":
            return Finished(run)
        case "refused":
            return Refused(run, message["reason"], message["begun"])
        case "halted":
            return Halted(run, message["reason"])
    return None


class EngineError(ValueError):
    """No worker can work at all; the message says why."""


class Engine(Protocol):
    """Runs jobs, several at once; a dead worker costs the run it worked on and nothing else."""

    @property
    def slots(self) -> int:
        """Jobs that may run at once."""

    def start(self, job: Job) -> None:
        """Begin; only when fewer than `slots` are running."""

    def wait(self, seconds: float) -> list[Event]:
        """What has happened since the last call; returns after `seconds` at the latest."""

    def cancel(self, run: str) -> None:
        """Stop working on a run that is no longer ours; no event follows."""

    def close(self) -> None:
        """Stop everything at once. What is on disk stays as it is, and is never half a file."""
