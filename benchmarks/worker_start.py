"""python benchmarks/worker_start.py [--json] [--turns 5]

How long a sweep waits for a worker, from asking for it to its first report about a run: forked from a process that has
torch loaded, and as a new interpreter that loads it, in turn. The fork server's own start comes once per process.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from statistics import median

from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.runs.engine import WORKER_ENVIRONMENT, Job
from recallscope.runs.forkserver import ForkServer
from recallscope.runs.store import RunStore
from recallscope.specs import RunSpec, TaskSpec, TrainSpec

RUN = RunSpec(
    task=TaskSpec(vocab_size=32, num_facts=4),
    model=LinearMambaSpec(embed_dim=8, state_dim=4),
    train=TrainSpec(batch_size=8, flat_steps=1, decay_steps=1, eval_size=10),
)


def first_report(server: ForkServer, folder: Path) -> float:
    """Seconds until a new worker has reported the start of a run."""
    stdin, ours_in = os.pipe()
    ours_out, stdout = os.pipe()
    with open(folder / "stderr", "wb") as stderr:
        began = time.perf_counter()
        server.start([str(folder), "cpu"], os.environ | WORKER_ENVIRONMENT, (stdin, stdout, stderr.fileno()))
        os.close(stdin)
        os.close(stdout)
        os.write(ours_in, json.dumps(Job(RUN.content_hash(), RUN).message()).encode() + b"\n")
        report = os.read(ours_out, 2**12)
        seconds = time.perf_counter() - began
    os.close(ours_in)
    os.close(ours_out)
    if not report:
        raise SystemExit(f"the worker died: {(folder / 'stderr').read_text()}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--turns", type=int, default=5, help="workers of either kind")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        RunStore(Path(name), create=True).folder(RUN.content_hash()).mkdir(parents=True)
        servers, first = {}, {}
        for way in ("new", "forked"):
            servers[way] = ForkServer(os.environ | WORKER_ENVIRONMENT, forks=way == "forked")
            first[way] = first_report(servers[way], Path(name))
        turns = [
            {way: first_report(server, Path(name)) for way, server in servers.items()} for _ in range(options.turns)
        ]
        for server in servers.values():
            server.close()
    seconds = {way: round(median(turn[way] for turn in turns), 4) for way in servers}
    result = {
        "benchmark": "worker_start",
        "load": round(os.getloadavg()[0], 2),
        "new_interpreter_seconds": seconds["new"],
        "forked_seconds": seconds["forked"],
        "ratio": round(seconds["new"] / seconds["forked"], 1),
        "first_forked_seconds": round(first["forked"], 2),
    }
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print(
        f"a worker starts in {seconds['forked']:.3f} s forked, {seconds['new']:.2f} s as a new interpreter: "
        f"{result['ratio']}x (load {result['load']}); the first one waits {first['forked']:.1f} s for torch"
    )


if __name__ == "__main__":
    main()
