"""Our training step against the straightforward one, and against its floor; interleaved in one run, one thread.

Both do the same work on the same model: draw a batch, forward, backward, clip, AdamW. The straightforward step has
logits at every position and `cross_entropy(ignore_index=-100)`, parameters as modules make them, and torch's AdamW;
the batch is drawn by our drawer in both. The floor is the three matrix products of the logits at the queries (forward,
and backward by either factor).

python benchmarks/train_step.py [--json] [--rounds 30]

glibc hands large temporaries back to the system after each operation, which costs the straightforward step dearly.
The figures without that (MALLOC_TRIM_THRESHOLD_, MALLOC_MMAP_THRESHOLD_) are printed too: the benchmark runs itself
again with them set. Times are CPU times of the process: what else runs on the machine costs cache, but is not counted.

The same for a CPU with AVX2 alone, on one that has more:

ATEN_CPU_CAPABILITY=avx2 MKL_ENABLE_INSTRUCTIONS=AVX2 RECALLSCOPE_CFLAGS=-mno-avx512f python benchmarks/train_step.py
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from shared.turns import medians, with_memory_given_back_and_kept
from torch.nn.functional import cross_entropy

from recallscope.architectures.mamba import LinearMambaSpec
from recallscope.architectures.model import build_model
from recallscope.specs import TrainSpec
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.tasks.drawing import sample_batch
from recallscope.train.optimizer import FlatWeights

SIZES = {
    "large": (MQARSpec(vocab_size=1024, num_facts=16), LinearMambaSpec(embed_dim=64, state_dim=32), 128, 8.0, 2.5),
    "small": (MQARSpec(vocab_size=512, num_facts=16), LinearMambaSpec(embed_dim=32, state_dim=16), 32, 4.0, 3.0),
}


def straightforward(model, optimizer, task, batch_size, generator):
    batch = sample_batch(task, batch_size, generator)
    logits = model(batch.tokens)
    loss = cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=-100, label_smoothing=0.1)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.5)
    optimizer.step()


def ours(model, weights, task, batch_size, generator):
    model.add_gradients(sample_batch(task, batch_size, generator), 0.1)
    weights.step(0.01, 1.5)


def agreement(task, spec, batch_size):
    """Largest differences in loss and gradients between the two ways, on one model and one batch."""
    generator = torch.Generator().manual_seed(0)
    model = build_model(spec, task.vocab_size, generator)
    batch = sample_batch(task, batch_size, generator)
    logits = model(batch.tokens)
    loss = cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=-100, label_smoothing=0.1)
    loss.backward()
    grads = [p.grad.clone() for p in model.parameters()]
    for p in model.parameters():
        p.grad.zero_()
    other = model.add_gradients(batch, 0.1)
    worst = max(float((p.grad - g).abs().max()) for p, g in zip(model.parameters(), grads, strict=True))
    return abs(float(loss.detach()) - float(other)), worst


def measure(name, rounds):
    task, spec, batch_size, wanted, floor_aim = SIZES[name]
    generator = torch.Generator().manual_seed(1)
    plain = build_model(spec, task.vocab_size, generator)
    plain_optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.0)
    fast = build_model(spec, task.vocab_size, generator)
    weights = FlatWeights(fast, TrainSpec())
    Q = batch_size * task.num_queries
    y, E, Z = torch.randn(Q, spec.embed_dim), torch.randn(spec.embed_dim, task.vocab_size), None

    def floor():
        nonlocal Z
        Z = torch.mm(y, E)
        torch.mm(Z, E.T)
        torch.mm(y.T, Z)

    ways = {
        "straightforward": lambda: straightforward(plain, plain_optimizer, task, batch_size, generator),
        "ours": lambda: ours(fast, weights, task, batch_size, generator),
        "floor": floor,
    }
    ms = medians(ways, rounds, warm_ups=3)
    loss_gap, grad_gap = agreement(task, spec, batch_size)
    return {
        "size": name,
        "ms": ms,
        "speedup": ms["straightforward"] / ms["ours"],
        "wanted": wanted,
        "over_floor": ms["ours"] / ms["floor"],
        "aim": floor_aim,
        "loss_difference": loss_gap,
        "gradient_difference": grad_gap,
    }


def line(row):
    ms = row["ms"]
    return (
        f"{row['size']:6} straightforward {ms['straightforward']:.2f} ms, ours {ms['ours']:.2f} ms: "
        f"{row['speedup']:5.1f}x (wanted {row['wanted']:g}x); {row['over_floor']:.2f} x the floor of "
        f"{ms['floor']:.2f} ms (aim {row['aim']:g}); loss differs by {row['loss_difference']:.0e}, "
        f"gradients by {row['gradient_difference']:.0e}"
    )


if __name__ == "__main__":
    with_memory_given_back_and_kept(__doc__, 30, lambda rounds: [measure(name, rounds) for name in SIZES], line)
