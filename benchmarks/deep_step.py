"""Training steps of deep linear Mamba and of many heads: ours against the printed algorithm; interleaved, one thread.

Both do the same work on the same model: draw a batch, forward, backward, clip, AdamW, all with our drawer, our loss
at the queries and our optimiser. The printed way goes through `trace`, line by line, at every position; ours through
weights multiplied out beforehand and one scan per layer.

python benchmarks/deep_step.py [--json] [--rounds 10]

glibc hands large temporaries back to the system after each operation, which costs the printed way dearly. The figures
without that (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_) are printed too: the benchmark runs itself again with
them set. Times are CPU times of the process. train_step.py says how to measure for a CPU with AVX2 alone.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from shared.turns import medians, with_memory_given_back_and_kept

from recallscope.architectures.model import build_model
from recallscope.ops.linear_scan import at_positions
from recallscope.ops.query_loss import query_loss
from recallscope.presets import preset_run
from recallscope.tasks.drawing import sample_batch
from recallscope.train.optimizer import FlatWeights

SIZES = {  # preset, fields changed, and the ratio wanted
    "layers, 2": ("layers", {"state_dim": 6, "num_layers": 2}, {"batch_size": 32}, 4.0),
    "layers, 4": ("layers", {"state_dim": 3, "num_layers": 4}, {"batch_size": 32}, 4.0),
    "layers, 2, batch 128": ("layers", {"state_dim": 6, "num_layers": 2}, {}, 4.0),
    "heads, MHA": ("heads", {"head_pattern": "MHA"}, {}, 3.0),
    "heads, MQA": ("heads", {"head_pattern": "MQA"}, {}, 3.0),
    "repeated keys, 2": ("repeated-keys", {"state_dim": 30, "num_layers": 2}, {}, 3.0),
}


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
    batch = sample_batch(run.task, min(run.train.batch_size, 16), generator)
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

    def steps(step):
        model = build_model(run.model, run.task.vocab_size, generator)
        weights = FlatWeights(model, run.train)

        def work():
            step(model, sample_batch(run.task, run.train.batch_size, generator), 0.1)
            weights.step(0.001, 1.0)

        return work

    ms = medians({"printed": steps(printed), "ours": steps(ours)}, rounds, warm_ups=2)
    loss_gap, grad_gap = agreement(run)
    return {
        "size": name,
        "ms": ms,
        "speedup": ms["printed"] / ms["ours"],
        "wanted": wanted,
        "loss_difference": loss_gap,
        "gradient_difference": grad_gap,
    }


def line(row):
    ms = row["ms"]
    return (
        f"{row['size']:21} printed {ms['printed']:7.1f} ms, ours {ms['ours']:6.1f} ms: "
        f"{row['speedup']:5.1f}x (wanted {row['wanted']:g}x); loss differs by {row['loss_difference']:.0e}, "
        f"gradients by {row['gradient_difference']:.0e}"
    )


if __name__ == "__main__":
    with_memory_given_back_and_kept(__doc__, 10, lambda rounds: [measure(name, rounds) for name in SIZES], line)
