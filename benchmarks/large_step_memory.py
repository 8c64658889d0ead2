"""Peak memory and time of one training step at the paper's largest size: V=50,000, L=4,000, N_f=1,000, D=150, N=75,
batch 5.

python benchmarks/large_step_memory.py [--json]
"""

import argparse
import json
import os
import resource
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.architectures.model import build_model
from recallscope.specs import TrainSpec
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.tasks.drawing import sample_batch
from recallscope.train.optimizer import FlatWeights

LIMIT = 3e9


def peak() -> float:
    """Most memory this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def main() -> None:
    """One step to warm up, one to be timed; the peak is over both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    before = peak()
    generator = torch.Generator().manual_seed(0)
    task = MQARSpec(vocab_size=50_000, num_facts=1000)
    model = build_model(LinearMambaSpec(embed_dim=150, state_dim=75), task.vocab_size, generator)
    weights = FlatWeights(model, TrainSpec())
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        model.add_gradients(sample_batch(task, 5, generator), 0.1)
        weights.step(0.003, 2.5)
        seconds.append(time.perf_counter() - started)
    result = {"peak_bytes": peak(), "imports_bytes": before, "limit_bytes": LIMIT, "seconds": seconds[-1]}
    if arguments.json:
        print(json.dumps(result))
    else:
        print(
            f"peak {peak() / 1e9:.2f} GB, of which {before / 1e9:.2f} GB imports (limit {LIMIT / 1e9:g} GB); "
            f"{seconds[-1]:.1f} s a step"
        )


if __name__ == "__main__":
    main()
