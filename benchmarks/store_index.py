"""python benchmarks/store_index.py [--json] [--records 20000]

A large store: how long it takes to plan a sweep over it, to verify it, to make its index anew from the files (which the
first `store list` does), and to answer `store list` with a filter, from Python and as a command (the start of the
interpreter included). The floor of the first three is to open and read every record once; that of an answer one look at
every record's size and time, without which an edited record would go unnoticed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.records import Evaluation, RunRecord, record_text
from recallscope.runs.grid import Cell
from recallscope.runs.index import rebuild_index
from recallscope.runs.plan import make_plan
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs, parse_conditions
from recallscope.runs.upkeep import verify
from recallscope.specs import RunSpec
from recallscope.tasks.associative_recall import MQARSpec

FILTER = ("embed_dim=64", "state_dim<=8")


def fill(store: RunStore, count: int) -> None:
    """Synthetic records as long as real ones."""
    history = [Evaluation(step=250 * k, loss=1 / k, accuracy=k / 9) for k in range(1, 9)]
    task = MQARSpec(vocab_size=512, num_facts=16)
    for number in range(count):
        D, N, seed = 16 * (1 + number % 4), 4 * (1 + number // 4 % 5), number // 20
        spec = RunSpec(task=task, model=LinearMambaSpec(embed_dim=D, state_dim=N), seed=seed)
        record = RunRecord(
            run=spec.content_hash(), spec=spec, test_accuracy=number % 97 / 97, val_accuracy=0.5, test_queries=160_000,
            best_step=2000, steps=2000, seconds=8.0, history=history, environment={"torch": "none", "device": "cpu"},
        )  # fmt: skip
        folder = store.folder(record.run)
        folder.mkdir()
        (folder / "record.json").write_bytes(record_text(record))


def read_all(store: RunStore) -> None:
    """Open and read every record once."""
    for path in store.runs.iterdir():
        with open(f"{path}/record.json", "rb") as file:
            file.read()


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--records", type=int, default=20_000, help="how many")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(Path(folder) / "store", create=True)
        fill(store, options.records)
        cells = [Cell.of(record.spec) for record in store.records()]
        whole = {
            "read": min(seconds(lambda: read_all(store)) for _ in range(3)),
            "plan": min(seconds(lambda: make_plan(cells, store)) for _ in range(3)),
            "verify": min(seconds(lambda: verify(store, move=False)) for _ in range(3)),
            "rebuild": min(seconds(lambda: rebuild_index(store)) for _ in range(3)),
        }
        command = [sys.executable, "-m", "recallscope.cli.main", "store", "list", str(store.root), "--where", *FILTER]
        command = [sys.executable, "-m", "recallscope.cli.main", "store", "list", str(store.root), "--where", *FILTER]
        asked, commanded, looked = [], [], []
        for _ in range(5):
            looked.append(seconds(lambda: [os.stat(f"{path}/record.json") for path in store.runs.iterdir()]))
            began = time.perf_counter()
            rows = find_runs(store, parse_conditions(FILTER), limit=50)
            asked.append(time.perf_counter() - began)
            commanded.append(seconds(lambda: subprocess.run(command, check=True, capture_output=True)))
        assert rows
    result = {
        "benchmark": "store_index",
        "load": round(os.getloadavg()[0], 2),
        "records": options.records,
        **{f"{name}_seconds": round(took, 2) for name, took in whole.items()},
        "filter_seconds": round(min(asked), 3),
        "command_seconds": round(min(commanded), 3),
        "floor_seconds": round(min(looked), 3),
    }
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"{options.records:,} records: " + ", ".join(f"{name} {took:.2f} s" for name, took in whole.items()))
        print(f"filtered in {min(asked):.3f} s, {min(commanded):.2f} s as a command; floor {min(looked):.3f} s")


if __name__ == "__main__":
    main()
