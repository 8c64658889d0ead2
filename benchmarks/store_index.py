"""python benchmarks/store_index.py [--json] [--records 100000]

The index of a large store: how long it takes to make it anew from the files, and to answer `store list` with a filter,
from Python and as a command (the start of the interpreter included). The floor of an answer is one look at every
record's size and time, without which an edited record would go unnoticed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recallscope.architectures.linear_mamba import LinearMambaSpec
from recallscope.records import Evaluation, RunRecord
from recallscope.runs.index import rebuild_index
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs, parse_conditions
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
        (folder / "record.json").write_text(record.model_dump_json(indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--records", type=int, default=100_000, help="how many")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(Path(folder) / "store", create=True)
        fill(store, options.records)
        began = time.perf_counter()
        assert rebuild_index(store) == options.records
        rebuilt = time.perf_counter() - began
        asked, commanded, looked = [], [], []
        for _ in range(5):
            began = time.perf_counter()
            for path in store.runs.iterdir():
                os.stat(f"{path}/record.json")
            looked.append(time.perf_counter() - began)
            began = time.perf_counter()
            rows = find_runs(store, parse_conditions(FILTER), limit=50)
            asked.append(time.perf_counter() - began)
            command = [
                sys.executable,
                "-m",
                "recallscope.cli.main",
                "store",
                "list",
                str(store.root),
                "--where",
                *FILTER,
            ]
            began = time.perf_counter()
            subprocess.run(command, check=True, capture_output=True)
            commanded.append(time.perf_counter() - began)
        assert rows
    result = {
        "benchmark": "store_index",
        "load": round(os.getloadavg()[0], 2),
        "records": options.records,
        "rebuild_seconds": round(rebuilt, 2),
        "filter_seconds": round(min(asked), 3),
        "command_seconds": round(min(commanded), 3),
        "floor_seconds": round(min(looked), 3),
    }
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"{options.records:,} records: index made anew in {rebuilt:.1f} s")
        print(f"filtered in {min(asked):.3f} s, {min(commanded):.2f} s as a command; floor {min(looked):.3f} s")


if __name__ == "__main__":
    main()
