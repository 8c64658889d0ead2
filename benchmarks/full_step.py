"""python benchmarks/full_step.py [--json] [--rounds 30]

A training step of one-layer full Mamba: ours against the same block written the textbook way around the same compiled
scan (logits after every token, `cross_entropy(ignore_index=-100)`, autograd, torch's AdamW). Batch 32, V = 512,
N_f = 16, L = 64. Both ways take turns on one thread; medians of loss and gradients alone, and of the whole step (draw
a batch, gradients, clip, AdamW). glibc hands large temporaries back to the system after each operation, so the figures
without that (as sweeps run) are printed too: the benchmark runs itself again with MALLOC_... set.
"""

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from shared.turns import medians, with_memory_given_back_and_kept
from torch.nn.functional import cross_entropy

from recallscope.architectures.mamba import MambaSpec
from recallscope.architectures.model import RecallModel, build_model
from recallscope.specs import TrainSpec
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.tasks.batch import Batch
from recallscope.tasks.drawing import sample_batch
from recallscope.train.optimizer import FlatWeights

TASK, BATCH, SMOOTHING, CLIP = MQARSpec(vocab_size=512, num_facts=16), 32, 0.1, 0.75
SIZES = ((16, 8), (32, 16), (64, 32))
WANTED = {(32, 16): 2.0}


def textbook_gradients(model: RecallModel, batch: Batch) -> torch.Tensor:
    logits = model(batch.tokens).flatten(0, 1)
    loss = cross_entropy(logits, batch.targets.flatten(), label_smoothing=SMOOTHING, ignore_index=-100)
    loss.backward()
    return loss.detach()


def difference(spec: MambaSpec) -> tuple[float, float]:
    """Of the losses, and of the gradients: largest ‖ours - theirs‖ / ‖theirs‖ over the parameters."""
    g = torch.Generator().manual_seed(0)
    model, batch = build_model(spec, TASK.vocab_size, g), sample_batch(TASK, BATCH, g)
    FlatWeights(model, TrainSpec())
    ours = model.add_gradients(batch, SMOOTHING)
    grads = {name: p.grad.clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad.zero_()
    theirs = textbook_gradients(model, batch)
    gaps = [float((grads[name] - p.grad).norm() / p.grad.norm()) for name, p in model.named_parameters()]
    return float((ours - theirs).abs() / theirs), max(gaps)


def ways(spec: MambaSpec) -> dict[str, Callable[[], None]]:
    """Gradients on one batch, and whole steps, both ways."""
    g = torch.Generator().manual_seed(0)
    plain, fast = (build_model(spec, TASK.vocab_size, g) for _ in range(2))
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01, betas=(0.9, 0.95), weight_decay=0.0)
    weights, batch = FlatWeights(fast, TrainSpec()), sample_batch(TASK, BATCH, g)

    def textbook_step() -> None:
        optimizer.zero_grad()
        textbook_gradients(plain, sample_batch(TASK, BATCH, g))
        torch.nn.utils.clip_grad_norm_(plain.parameters(), CLIP)
        optimizer.step()

    def our_step() -> None:
        fast.add_gradients(sample_batch(TASK, BATCH, g), SMOOTHING)
        weights.step(0.01, CLIP)

    return {
        "textbook gradients": lambda: textbook_gradients(plain, batch),
        "our gradients": lambda: fast.add_gradients(batch, SMOOTHING),
        "textbook step": textbook_step,
        "our step": our_step,
    }


def measure(D: int, N: int, rounds: int) -> dict[str, Any]:
    spec = MambaSpec(embed_dim=D, state_dim=N)
    ms = {name: round(value, 2) for name, value in medians(ways(spec), rounds, warm_ups=3).items()}
    loss_gap, grad_gap = difference(spec)
    return {
        "embed_dim": D,
        "state_dim": N,
        "ms": ms,
        "gradients_speedup": round(ms["textbook gradients"] / ms["our gradients"], 2),
        "step_speedup": round(ms["textbook step"] / ms["our step"], 2),
        "wanted": WANTED.get((D, N)),
        "loss_difference": loss_gap,
        "gradient_difference": grad_gap,
    }


def line(row: dict[str, Any]) -> str:
    ms, wanted = row["ms"], f" (wanted {row['wanted']:g}x)" if row["wanted"] else ""
    return (
        f"({row['embed_dim']},{row['state_dim']}): gradients {ms['textbook gradients']:.2f} -> "
        f"{ms['our gradients']:.2f} ms, {row['gradients_speedup']}x; step {ms['textbook step']:.2f} -> "
        f"{ms['our step']:.2f} ms, {row['step_speedup']}x{wanted}; "
        f"loss differs by {row['loss_difference']:.0e}, gradients by {row['gradient_difference']:.0e}"
    )


if __name__ == "__main__":
    with_memory_given_back_and_kept(__doc__, 30, lambda rounds: [measure(D, N, rounds) for D, N in SIZES], line)
