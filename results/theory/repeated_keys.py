"""Play a delta rule on repeated keys with codes written down, and train DeltaNets beside it.

Every key is written twice, the last value is asked (App. I.2). State and sequences are the task's; unit keys, values
from a tight frame, (key, value) pairs written with rate b and nothing else. The keys are a random tight frame, or one
whose words repel each other as far as they can (`recallscope.theory.bounds`). Nothing is fitted; b is the best of a few.
Writes `repeated_keys.md` beside this file:

    OMP_NUM_THREADS=1 python results/theory/repeated_keys.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from recallscope.architectures.matrix_memory import DeltaNetSpec
from recallscope.architectures.matrix_memory_model import MemoryModel
from recallscope.specs import RunSpec, TrainSpec
from recallscope.tasks.associative_recall import RepeatedSpec
from recallscope.theory.bounds import least_kurtosis, repelled_frame, tight_frame
from recallscope.train.loop import train_run

V, N_K = 512, 2
CELLS = ((64, 16, 8), (32, 16, 8), (16, 16, 8), (32, 8, 8), (32, 16, 16))  # D, N, N_f
RATES = (0.1, 0.2, 0.3, 0.45, 0.6, 0.8)
DRAWS, SEQUENCES = 2, 400


def recall(keys: NDArray, values: NDArray, b: float, N_f: int, rng: np.random.Generator) -> float:
    """Share of right answers; filler behind a query is a value half of the time, and is then written."""
    rows, where = np.arange(SEQUENCES), rng.random((SEQUENCES, len(keys))).argsort(1)[:, :N_f]
    written = rng.random((SEQUENCES, N_K, len(values))).argsort(2)[:, :, :N_f]
    S = np.zeros((SEQUENCES, values.shape[1], keys.shape[1]))

    def write(k: NDArray, v: NDArray, rate: NDArray) -> None:
        change = rate[:, None] * (v - np.einsum("sdn,sn->sd", S, k))
        np.add(S, change[:, :, None] * k[:, None], out=S)

    for block in range(N_K):
        for fact in range(N_f):
            write(keys[where[:, fact]], values[written[:, block, fact]], np.full(SEQUENCES, b))
    right = 0.0
    for fact in rng.random((SEQUENCES, N_f)).argsort(1).T:
        k = keys[where[rows, fact]]
        answer = (np.einsum("sdn,sn->sd", S, k) @ values.T).argmax(1)
        right += float((answer == written[rows, -1, fact]).mean()) / N_f
        write(k, values[rng.integers(len(values), size=SEQUENCES)], b * (rng.random(SEQUENCES) < 0.5))
    return right


def best(repelled: bool, D: int, N: int, N_f: int, rng: np.random.Generator) -> tuple[float, float]:
    """The largest recall over the rates, and its rate."""
    make = repelled_frame if repelled else tight_frame
    codes = [(make(N, V // 2, rng), tight_frame(D, V // 2, rng)) for _ in range(DRAWS)]
    found = {b: float(np.mean([recall(k, v, b, N_f, rng) for k, v in codes])) for b in RATES}
    rate = max(found, key=lambda b: found[b])
    return found[rate], rate


def trained(D: int, N: int, N_f: int) -> tuple[float, float, float]:
    """Accuracy of a DeltaNet, its mean rate at (key, value) pairs, and the kurtosis of its key kernel."""
    run = RunSpec(
        task=RepeatedSpec(vocab_size=V, num_facts=N_f, key_repeats=N_K),
        model=DeltaNetSpec(embed_dim=D, state_dim=N),
        train=TrainSpec(batch_size=32, eval_every=500, eval_size=1600),
    )
    done = train_run(run, progress=False)
    assert isinstance(done.model, MemoryModel)
    layer = done.model.layers[0]
    keys = torch.arange(1, V // 2)
    pairs = torch.stack([keys, torch.arange(V // 2, V - 1)], dim=1)
    with torch.no_grad():
        drive = layer.drive(layer.project_in(done.model.embed(pairs)))
        b = float(torch.sigmoid(drive.gates["beta"][:, 1]).mean())
        k = drive.k[:, 1, 0].double().numpy()
    products = (k @ k.T)[~np.eye(len(k), dtype=bool)]
    return done.record.test_accuracy, b, float((products**4).mean() / (products**2).mean() ** 2)


def main() -> None:
    """The table, and what it says."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    lines = [
        "# Repeated keys under a delta rule",
        "",
        "Written by `results/theory/repeated_keys.py` (seed 0). "
        f"V = {V}, every key written {N_K} times, the last value asked. Monte Carlo: {DRAWS} codes, {SEQUENCES} "
        f"sequences each, best b of {', '.join(map(str, RATES))}; trained: one DeltaNet of 2000 steps, batch 32. "
        "Kurtosis is that of inner products of different keys: as trained, and the least there can be.",
        "",
        "| D, N, N_f | keys a random frame (b) | keys that repel (b) | trained (b) | kurtosis trained (least) |",
        "|---|---|---|---|---|",
    ]
    errors = []
    for D, N, N_f in CELLS:
        (plain, b_plain), (apart, b_apart) = (best(repelled, D, N, N_f, rng) for repelled in (False, True))
        p, b, kurtosis = trained(D, N, N_f)
        errors.append((plain - p, apart - p))
        lines.append(
            f"| {D}, {N}, {N_f} | {plain:.4f} ({b_plain}) | {apart:.4f} ({b_apart}) | {p:.4f} ({b:.2f}) "
            f"| {kurtosis:.2f} ({least_kurtosis(N, V // 2):.2f}) |"
        )
        print(lines[-1], flush=True)
    plain, apart = np.array(errors).T
    lines += [
        "",
        f"Monte Carlo less trained: random frames {plain.mean():+.3f} on average ({np.abs(plain).max():.3f} at most), "
        f"keys that repel {apart.mean():+.3f} ({np.abs(apart).max():.3f} at most). "
        "A closed form is not known: with the old value as a competitor of known weight and the moments of the delta "
        "rule, a law of equal competitors is too high at large b, because a key near the asked one both takes from the "
        "right value's weight and adds its own.",
    ]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
