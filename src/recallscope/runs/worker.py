"""One run, from job to record; and `python -m recallscope.runs.worker STORE DEVICE`, the process of one local slot.

The process is not for use by hand. It reads jobs, one JSON object per line, from stdin and reports, one per line, on
what was its stdout; anything a library prints goes to stderr. When stdin ends the driver is gone, and the worker exits
at once: its run's checkpoint is on disk, and the next driver resumes it.
"""

import json
import os
import queue
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallscope.atomic import between_writes, is_storage_fault
from recallscope.records import RunRecord
from recallscope.registry import import_from
from recallscope.runs.leases import note_attempt
from recallscope.runs.store import CHECKPOINT, WEIGHTS, RunStore, set_aside
from recallscope.specs import RunSpec

if TYPE_CHECKING:
    from recallscope.train.loop import Trained
    from recallscope.train.progress import Tick

REPORT_EVERY = 0.5  # seconds between two reports of progress


class CannotBeginError(ValueError):
    """The code of a run's task or architecture cannot be used in this process; the message says why."""


class BrokenModuleError(CannotBeginError):
    """A user's module failed its checks after it had begun, such as by NaN in evaluation; another try would, too."""


def spec_of(job: Mapping[str, Any]) -> RunSpec:
    """The spec of a job's message, once the code that defines its parts is imported."""
    sys.path += [entry for entry in (job["folder"], *job["path"]) if entry not in sys.path]
    try:
        for reference in job["imports"]:
            import_from(reference)
        spec = RunSpec.model_validate(job["spec"])
    except (Exception, SystemExit) as error:  # the code of others may do anything when it is imported
        what = f"importing {', '.join(job['imports'])}" if job["imports"] else "reading the spec"
        raise CannotBeginError(f"{what} failed: {type(error).__name__}: {_first_line(error)}") from error
    if spec.content_hash() != job["run"]:
        raise CannotBeginError("the code of its task or architecture is not the one the sweep was started with")
    return spec


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0].rstrip(".")


def do_run(
    spec: RunSpec,
    *,
    store: RunStore | None,
    device: str,
    weights: bool,
    on_progress: "Callable[[Tick], None] | None" = None,
) -> tuple[RunRecord, bytes | None]:
    """Train on one thread; returns the record and, if asked for, the weights as a safetensors file's bytes.

    With a store in reach the run is checkpointed there and resumes what a predecessor saved; without one it starts
    afresh. A checkpoint that cannot be resumed is set aside. Nothing but the checkpoint is written: the caller stores
    the result.
    """
    import torch

    from recallscope.architectures.user_module_model import UserModuleError
    from recallscope.train.checkpoint import CheckpointError
    from recallscope.train.loop import train_run
    from recallscope.train.weights import write_weights

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    checkpoint = store.folder(spec.content_hash()) / CHECKPOINT if store else None
    begun = False

    def watch(tick: "Tick") -> None:
        nonlocal begun
        begun = True
        if on_progress:
            on_progress(tick)

    def train() -> "Trained":
        return train_run(spec, device=device, checkpoint=checkpoint, on_progress=watch)

    try:
        try:
            trained = train()
        except CheckpointError as error:  # damaged, of another version, or of another run: it begins anew
            assert store is not None
            assert checkpoint is not None
            set_aside(store.root, checkpoint, str(error))
            note_attempt(checkpoint.parent, "checkpoint set aside", reason=str(error))
            trained = train()
    except ValueError as error:  # such as a module of the user's own that cannot be imported or called
        if isinstance(error.__cause__, RuntimeError):  # such as a full GPU: it may go better next time
            raise
        if begun and not isinstance(error, UserModuleError):
            raise
        raise (BrokenModuleError if begun else CannotBeginError)(_first_line(error)) from error
    finally:
        torch.set_num_threads(threads)  # the process may be the user's own
    if not weights:
        return trained.record, None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / WEIGHTS
        write_weights(path, trained.model, spec.task)
        return trained.record, path.read_bytes()


Report = Callable[[dict[str, Any]], None]


def do_job(
    run: str, read_spec: Callable[[], RunSpec], *, store: RunStore, device: str, weights: bool, report: Report
) -> None:
    """Do one run of a sweep, store its record, and report how it goes as messages for `event_of`.

    An error that is neither the disk's nor a refusal is raised: it ends a worker process, and with it the try.
    """
    last = 0.0

    def on_progress(tick: "Tick") -> None:
        nonlocal last
        if tick.seconds - last >= REPORT_EVERY:
            last = tick.seconds
            report({"event": "moved", "run": run, "step": tick.step, "total_steps": tick.total_steps})

    try:
        note_attempt(store.folder(run), "started")
        report({"event": "started", "run": run})
        record, tensors = do_run(read_spec(), store=store, device=device, weights=weights, on_progress=on_progress)
        first = store.put(record, tensors)
        note_attempt(store.folder(run), "finished" if first else "finished again")
        report({"event": "finished", "run": run})
    except CannotBeginError as error:
        begun = isinstance(error, BrokenModuleError)
        report({"event": "refused", "run": run, "reason": str(error), "begun": begun})
    except OSError as error:
        if not is_storage_fault(error, store.root):
            raise
        report({"event": "halted", "run": run, "reason": f"{error.filename or store.root}: {error.strerror}"})


def main(arguments: list[str]) -> None:
    """Work until stdin ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the driver decides
    reports = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(jobs,), daemon=True).start()

    def report(message: dict[str, Any]) -> None:
        try:
            reports.write(json.dumps(message) + "\n")
        except OSError:  # the driver is gone
            os._exit(0)

    import recallscope.train.loop  # noqa: F401 (a worker without torch dies here, before it begins a run)

    store, device = RunStore(Path(arguments[0])), arguments[1]
    while True:
        job = jobs.get()
        read_spec = partial(spec_of, job)
        do_job(job["run"], read_spec, store=store, device=device, weights=job["weights"], report=report)


def _read_jobs(jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Pass jobs on as they come; end the process with the driver, even in the middle of a run."""
    for line in sys.stdin:
        jobs.put(json.loads(line))
    with between_writes:
        if os.getpgrp() == os.getpid():  # and with us whatever the user's code has started
            os.killpg(0, signal.SIGKILL)
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
