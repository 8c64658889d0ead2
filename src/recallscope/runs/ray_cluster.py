"""The Ray engine: the same jobs on a cluster. Results come back to the driver, which stores them; nodes may die."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from dataclasses import dataclass, field
from typing import Any

from recallscope.atomic import is_storage_fault
from recallscope.records import parse_record, record_text
from recallscope.registry import PLUGINS
from recallscope.runs.engine import WORKER_ENVIRONMENT, Died, EngineError, Event, Finished, Halted, Job, Refused
from recallscope.runs.leases import note_attempt
from recallscope.runs.store import RunStore

START = "ray start --head --node-ip-address=127.0.0.1"
COUNT_EVERY = 2.0  # seconds between looks at the size of the cluster


def ray_job(job: dict[str, Any], root: str, store_id: str, device: str) -> tuple[str | None, bytes | None, str | None]:
    """What a node does: plain data in; the record, weights, and why it could not begin out.

    It works in the driver's folder if the node has it. If it sees the store, checkpoints go there and outlive the node.
    """
    from recallscope.runs.worker import CannotBeginError, do_run, spec_of

    if os.path.isdir(job["folder"]):
        os.chdir(job["folder"])
    try:
        record, tensors = do_run(spec_of(job), store=_store_at(root, store_id), device=device, weights=job["weights"])
    except CannotBeginError as error:
        return None, None, str(error)
    return record_text(record).decode(), tensors, None


def _store_at(root: str, store_id: str) -> RunStore | None:
    """The driver's store if the path is that very store on this host, too: on a cluster it need not be."""
    try:
        store = RunStore(root)
    except (ValueError, OSError):
        return None
    return store if store.marker.get("id") == store_id else None


def answers(address: str) -> None:
    """Raise OSError at once if nobody listens there; Ray itself would try for minutes, and then end the process."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=5).close()


@dataclass
class RayEngine:
    """Jobs as Ray tasks of one CPU, or of a share of a GPU; Ray's own retries are off, so that tries count once."""

    store: RunStore
    address: str = "auto"
    workers: int | None = None  # at most so many at once; the size of the cluster otherwise
    slots_per_gpu: int | None = None  # on GPUs, each task taking 1 / slots_per_gpu of one
    _running: dict[Any, Job] = field(default_factory=dict)
    _slots: int = 0
    _counted: float = float("-inf")
    _ours: bool = False

    def __post_init__(self) -> None:
        for name, value in (("workers", self.workers), ("slots_per_gpu", self.slots_per_gpu)):
            if value is not None and not 1 <= value <= 10**6:
                raise ValueError(f"{name}={value} is outside 1..1000000.")
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ModuleNotFoundError as error:
            raise ValueError(
                "--engine ray needs Ray, which is not installed. Run: pip install 'recallscope[ray]'"
            ) from error
        self._ray = ray
        if not ray.is_initialized():
            try:
                answers(self.address)
                ray.init(
                    address=self.address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False
                )
            except (ConnectionError, OSError, ValueError, RuntimeError) as error:
                raise EngineError(
                    f"no Ray cluster answers at address={self.address!r} ({str(error).splitlines()[0]}). "
                    f"Start one with: {START} and give --address 127.0.0.1:6379. Use trusted networks only: Ray asks "
                    f"for no password and listens on all interfaces even so: whoever reaches its ports can run code."
                ) from error
            self._ours = True
        gpu = 1 / self.slots_per_gpu if self.slots_per_gpu else 0
        plugins = {PLUGINS: os.environ[PLUGINS]} if PLUGINS in os.environ else {}
        self._task = ray.remote(ray_job).options(
            num_cpus=1 if not gpu else 0,
            num_gpus=gpu,
            max_retries=0,
            runtime_env={"env_vars": WORKER_ENVIRONMENT | plugins},
        )
        self._device = "cuda:0" if gpu else "cpu"

    @property
    def slots(self) -> int:
        """What the cluster offers now; it may grow and shrink."""
        if time.monotonic() - self._counted > COUNT_EVERY:
            self._counted = time.monotonic()
            there = self._ray.cluster_resources()
            offered = there.get("GPU", 0) * self.slots_per_gpu if self.slots_per_gpu else there.get("CPU", 0)
            self._slots = min(int(offered), self.workers or int(offered))
        return self._slots

    def start(self, job: Job) -> None:
        """Hand a job to the cluster."""
        note_attempt(self.store.folder(job.run), "started", engine="ray")
        root, store_id = str(self.store.root.absolute()), str(self.store.marker.get("id"))
        self._running[self._task.remote(job.message(), root, store_id, self._device)] = job

    def wait(self, seconds: float) -> list[Event]:
        """Fetch what is finished and keep it; what was lost is reported."""
        if not self._running:
            time.sleep(min(seconds, 0.05))
            return []
        references = list(self._running)
        ready, _ = self._ray.wait(references, num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        return [self._fetch(reference) for reference in ready]

    def cancel(self, run: str) -> None:
        """Stop the task of a run."""
        for reference, job in list(self._running.items()):
            if job.run == run:
                del self._running[reference]
                self._ray.cancel(reference, force=True)

    def close(self) -> None:
        """Stop all tasks; leave the cluster, if it was we who joined it."""
        for job in list(self._running.values()):
            with contextlib.suppress(Exception):  # a cluster that is gone cannot be told to stop
                self.cancel(job.run)
        if self._ours:
            self._ray.shutdown()

    def _fetch(self, reference: Any) -> Event:
        job = self._running.pop(reference)
        lost = (self._ray.exceptions.NodeDiedError, self._ray.exceptions.ObjectLostError)
        try:
            text, weights, refused = self._ray.get(reference)
        except lost as error:
            return Died(job.run, "was lost with its node", str(error), begun=False)
        except self._ray.exceptions.RayError as error:
            cause: Any = getattr(error, "cause", None)
            if is_storage_fault(cause, self.store.root):
                return Halted(job.run, f"{cause.filename or 'on a node'}: {cause.strerror}")
            kind = type(error).__name__
            return Died(job.run, f"died on the cluster ({kind})", str(error))
        if refused is not None:
            return Refused(job.run, refused)
        first = self.store.put(parse_record(text), weights)
        note_attempt(self.store.folder(job.run), "finished" if first else "finished again")
        return Finished(job.run)
