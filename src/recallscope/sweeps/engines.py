"""What a driver asks of an engine, and what an engine tells it. Local processes and Ray are two of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from recallscope.specs import RunSpec
from recallscope.store import RunStore

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


@dataclass(frozen=True)
class Moved:
    """A run is on its way."""

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
    begun: bool = True  # False if the worker died before it came to the run, which then is not to blame


class EngineError(ValueError):
    """No worker can be brought to work at all; the message says what they died of."""


Event = Moved | Finished | Died


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


def store_is_here(root: Path, store_id: str) -> bool:
    """Whether a path on this host is the very store the driver means: on a cluster it need not be."""
    try:
        return RunStore(root).facts.get("id") == store_id
    except (ValueError, OSError):
        return False
