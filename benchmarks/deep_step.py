"""Training steps of deep linear Mamba and of many heads: ours against the printed algorithm; interleaved, one thread.

Both do the same work on the same model: draw a batch, forward, backward, clip, AdamW, all with our drawer, our loss
at the queries and our optimiser. The printed way goes through `trace`, line by line, at every position; ours through
weights multiplied out beforehand and one scan per layer.

python benchmarks/deep_step.py [--json] [--rounds 10]

glibc hands large temporaries back to the system after each operation, which costs the printed way dearly. The figures
without that (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_) are printed too: the benchmark runs itself again with
them set. Times are CPU times of the process. train_step.py says how to measure for a CPU with AVX2 alone.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from recallscope.architectures.model import build_model
from recallscope.ops import at_positions
from recallscope.ops.query_loss import query_loss
from recallscope.presets import preset_run
from recallscope.tasks import draw_batch
from recallscope.train.optimizer import FlatWeights

SIZES = {  # preset, fields changed, and the ratio wanted
    "layers, 2": ("layers", {"state_dim": 6, "num_layers": 2}, {"batch_size": 32}, 4.0),
    "layers, 4": ("layers", {"state_dim": 3, "num_layers": 4}, {"batch_size": 32}, 4.0),
    "layers, 2, batch 128": ("layers", {"state_dim": 6, "num_layers": 2}, {}, 4.0),
    "heads, MHA": ("heads", {"head_pattern": "MHA"}, {}, 3.0),
    "heads, MQA": ("heads", {"head_pattern": "MQA"}, {}, 3.0),
    "repeated keys, 2": ("repeated-keys", {"state_dim": 30, "num_layers": 2}, {}, 3.0),
}
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": "2000000000", "MALLOC_MMAP_THRESHOLD_": "1000000000"}


def printed(model, batch, label_smoothing):
    """Autograd through the algorithm as printed."""
    x = model.embed(batch.tokens)
    for layer in model.layers:
        x = layer.trace(x).y
    y = at_positions(x, batch.query_positions)
    loss = query_loss(y.flatten(0, 1), model.head, batch.answers.flatten(), label_smoothing)
    loss.backward()
    return loss.detach()


def ours(model, batch, label_smoothing):
    """As training does it."""
    return model.add_gradients(batch, label_smoothing)


def agreement(run):
    """Differences in loss and, relative to the largest, in gradients; on one model and one batch."""
    generator = torch.Generator().manual_seed(0)
    model = build_model(run.model, run.task.vocab_size, generator, embedding_std=0.3)
    batch = draw_batch(run.task, min(run.train.batch_size, 16), generator)
    found = []
    for step in (printed, ours):
        model.zero_grad()
        found.append((float(step(model, batch, 0.1)), torch.cat([p.grad.flatten() for p in model.parameters()])))
    (loss, grad), (other_loss, other_grad) = found
    return abs(loss - other_loss), float((grad - other_grad).abs().max() / grad.abs().max())


def measure(name, rounds):
    preset, model_fields, train_fields, wanted = SIZES[name]
    run = preset_run(preset, model=model_fields, train=train_fields)
    generator = torch.Generator().manual_seed(1)
    times, ways = {}, {}
    for way, step in (("printed", printed), ("ours", ours)):
        model = build_model(run.model, run.task.vocab_size, generator)
        ways[way], times[way] = (step, model, FlatWeights(model, run.train)), []
    for round_number in range(rounds + 2):
        for way, (step, model, weights) in ways.items():
            started = time.process_time()
            step(model, draw_batch(run.task, run.train.batch_size, generator), 0.1)
            weights.step(0.001, 1.0)
            if round_number >= 2:
                times[way].append(1e3 * (time.process_time() - started))
    ms = {way: median(values) for way, values in times.items()}
    loss_gap, grad_gap = agreement(run)
    return {
        "size": name,
        "ms": ms,
        "speedup": ms["printed"] / ms["ours"],
        "wanted": wanted,
        "loss_difference": loss_gap,
        "gradient_difference": grad_gap,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.inner:
        print(json.dumps([measure(name, arguments.rounds) for name in SIZES]))
        return
    command = [sys.executable, __file__, "--inner", "--rounds", str(arguments.rounds)]
    results = {}
    for label, extra in (("as glibc comes", {}), ("memory kept", KEEP_MEMORY)):
        done = subprocess.run(command, env=os.environ | extra, capture_output=True, text=True, check=True)
        results[label] = json.loads(done.stdout)
    if arguments.json:
        print(json.dumps({"load": os.getloadavg()[0], **results}))
        return
    print(f"load of the machine {os.getloadavg()[0]:.1f}")
    for label, rows in results.items():
        for row in rows:
            ms = row["ms"]
            print(
                f"{label:15} {row['size']:21} printed {ms['printed']:7.1f} ms, ours {ms['ours']:6.1f} ms: "
                f"{row['speedup']:5.1f}x (wanted {row['wanted']:g}x); loss differs by {row['loss_difference']:.0e}, "
                f"gradients by {row['gradient_difference']:.0e}"
            )


if __name__ == "__main__":
    main()
