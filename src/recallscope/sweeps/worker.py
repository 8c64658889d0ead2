"""`python -m recallscope.sweeps.worker STORE DEVICE`: the process of one slot. Not for hand use.

It reads jobs, one JSON object per line, from stdin and reports, one per line, on what was its stdout; anything a
library prints goes to stderr. When stdin ends the driver is gone, and the worker goes at once: its run's checkpoint is
on disk, and whoever drives next takes the run over.
"""

import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from recallscope.atomic import between_writes
from recallscope.specs import RunSpec
from recallscope.store import RunStore, note_attempt

REPORT_EVERY = 0.5  # seconds between two signs of progress


def main() -> None:
    """Work until told to stop."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the driver decides
    reports = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()

    def report(**facts: Any) -> None:
        try:
            reports.write(json.dumps(facts) + "\n")
        except OSError:  # nobody listens any more
            os._exit(0)

    from recallscope.sweeps.work import do_run
    from recallscope.train.loop import Tick

    store, device = RunStore(Path(sys.argv[1])), sys.argv[2]
    while True:
        job = jobs.get()
        spec = RunSpec.model_validate_json(job["spec"])
        run = spec.content_hash()

        last = [0.0]

        def on_progress(tick: Tick, run: str = run, last: list[float] = last) -> None:
            if tick.seconds - last[0] >= REPORT_EVERY:
                last[0] = tick.seconds
                report(event="moved", run=run, step=tick.step, total_steps=tick.total_steps)

        note_attempt(store.folder(run), "started")
        report(event="started", run=run)
        record, weights = do_run(spec, store=store.root, device=device, weights=job["weights"], on_progress=on_progress)
        first = store.put(record, weights)
        note_attempt(store.folder(run), "finished" if first else "finished again")
        report(event="finished", run=run)


def _listen(jobs: queue.SimpleQueue[dict[str, Any]]) -> None:
    """Pass jobs on as they come; end the process with the driver, even in the middle of a run."""
    for line in sys.stdin:
        jobs.put(json.loads(line))
    with between_writes:
        os._exit(0)


if __name__ == "__main__":
    main()
