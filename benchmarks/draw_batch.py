"""python benchmarks/sample_batch.py [--json] [--repeats 30]

Time of one fresh batch of 128 sequences: sample_batch against numpy row by row, as zoology draws it. They take
turns in one process on one thread, so that a busy machine slows both alike; medians of CPU time are compared.
"""

import argparse
import json

import torch
from shared.turns import medians

from recallscope.specs import TaskSpec
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.tasks.drawing import sample_batch
from recallscope.tasks.zoology import zoology_batch

BATCH_SIZE = 128
OURS_PER_TURN = 40  # timed together: about as long as one batch row by row, so interruptions hit both alike
TASKS = (
    MQARSpec(vocab_size=512, num_facts=16, length=64),
    MQARSpec(vocab_size=1024, num_facts=16, length=64),
    MQARSpec(vocab_size=8192, num_facts=16, length=256),
)


def measure(task: TaskSpec, repeats: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(0)

    def ours() -> None:
        for _ in range(OURS_PER_TURN):
            sample_batch(task, BATCH_SIZE, generator)

    def row_by_row() -> None:
        zoology_batch(task, BATCH_SIZE, seed=0, filler_seed=0)

    ms = medians({"row by row": row_by_row, "ours": ours}, repeats)
    slow_ms, fast_ms = ms["row by row"], ms["ours"] / OURS_PER_TURN
    return {
        "vocab_size": task.vocab_size,
        "length": task.length,
        "num_facts": task.num_facts,
        "row_by_row_ms": round(slow_ms, 3),
        "draw_batch_ms": round(fast_ms, 3),
        "ratio": round(slow_ms / fast_ms, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--repeats", type=int, default=30, help="turns per task")
    options = parser.parse_args()
    if options.repeats < 1:
        parser.error(f"--repeats {options.repeats}: at least one turn is needed")
    torch.set_num_threads(1)

    results = [measure(task, options.repeats) for task in TASKS]
    if options.json:
        print(
            json.dumps(
                {"benchmark": "sample_batch", "batch_size": BATCH_SIZE, "threads": 1, "results": results}, indent=2
            )
        )
        return
    print(f"one batch of {BATCH_SIZE}, one thread, medians")
    print(f"{'V':>6} {'L':>5} {'N_f':>4} {'row by row':>12} {'sample_batch':>12} {'ratio':>7}")
    for r in results:
        print(
            f"{r['vocab_size']:>6} {r['length']:>5} {r['num_facts']:>4} "
            f"{r['row_by_row_ms']:>9.2f} ms {r['draw_batch_ms']:>9.3f} ms {r['ratio']:>6.0f}x"
        )


if __name__ == "__main__":
    main()
