"""Play memories with drawn codes and sequences, and hold their recall against the laws.

Codes are explicit tight frames with words of length 1, sequences are MQAR's with random filler, and a query counts as
answered when the right value has the largest logit of all V/2 values. AR asks every fact right after the context.
Nothing of recallscope takes part in the measurement. Writes `memories_monte_carlo.csv` and `memories_monte_carlo.md`
beside this file:

    OMP_NUM_THREADS=1 python results/theory/memories_monte_carlo.py
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from designed_monte_carlo import draw_sequences
from numpy.typing import NDArray

from recallscope.theory.law import find_law

Array = NDArray[np.float64]
Row = dict[str, Any]
CELLS = [  # V, N_f, D, N
    (512, 16, 32, 8), (512, 16, 32, 16), (512, 16, 16, 8), (512, 16, 16, 16), (512, 16, 64, 4), (512, 16, 64, 8),
    (512, 8, 16, 8), (256, 16, 24, 12), (1024, 16, 32, 8), (512, 32, 32, 16),
]  # fmt: skip
SHORT = 0.1  # length of keys beside values where they share dimensions: (key, key) pairs then leave no noise
GAMMA = 31 / 32
FIELDS = ["memory", "law", "task", "V", "N_f", "L", "D", "N", "draws", "queries", "measured", "standard_error",
          "predicted", "error"]  # fmt: skip


def frame(rng: np.random.Generator, dim: int, count: int, turns: int = 40) -> Array:
    """A tight frame (dim, count) of columns of length 1: made tight and normalised in turn."""
    words = rng.standard_normal((dim, count))
    for _ in range(turns):
        words /= np.linalg.norm(words, axis=0)
        if dim >= count:
            return np.linalg.qr(words)[0]
        left, _, right = np.linalg.svd(words, full_matrices=False)
        words = np.sqrt(count / dim) * left @ right
    return words / np.linalg.norm(words, axis=0)


class Codes(NamedTuple):
    """What tokens write as values, write as keys and ask with, (V, D) and twice (V, N); and every token's bank."""

    value: Array
    key: Array
    query: Array
    bank: NDArray[np.int64]


def gated_codes(rng: np.random.Generator, V: int, N_f: int, D: int, N: int) -> Codes:
    """Keys and values share nothing; a write gate sees to it that only keys are keys."""
    value, key = np.zeros((V, D)), np.zeros((V, N))
    key[: V // 2], value[V // 2 :] = frame(rng, N, V // 2).T, frame(rng, D, V // 2).T
    return Codes(value, key, key, np.zeros(V, int))


def shared_codes(rng: np.random.Generator, V: int, N_f: int, D: int, N: int) -> Codes:
    """Words of R^D, values with a share y in the N dimensions of the keys: the y that leaves least noise."""
    pairs, v_N = N_f + (N_f - 1) / 4, (1 / N - 2 / V) * V / (V - 2)
    cost = 1 + (pairs - 1) * v_N
    inside, outside = 1 / (cost / N + pairs / N**2), (D - N) / cost
    y = inside / (inside + outside)
    words = np.zeros((V, D))
    words[: V // 2, :N] = SHORT * frame(rng, N, V // 2).T
    words[V // 2 :, :N] = np.sqrt(y) * frame(rng, N, V // 2).T
    words[V // 2 :, N:] = np.sqrt(1 - y) * frame(rng, D - N, V // 2).T
    return Codes(words, words[:, :N], words[:, :N], np.zeros(V, int))


def bank_codes(rng: np.random.Generator, V: int, N_f: int, D: int, N: int) -> Codes:
    """Gated codes with values in the D - N/2 channels of a bank, and a bit for every key."""
    codes = gated_codes(rng, V, N_f, D - N // 2, N)
    return codes._replace(bank=rng.integers(0, 2, V))


class Memory(NamedTuple):
    """A rule: how a pair changes the state, how the state is read, which codes it has, and its law."""

    law: str
    codes: Callable[..., Codes] = gated_codes
    rate: float | None = None  # b of the delta rule
    keep: float = 1.0  # gamma
    solves: bool = False
    gated: bool = True
    options: tuple[tuple[str, float], ...] = ()


MEMORIES = {
    "Hebb": Memory("trained-sharing", shared_codes, gated=False),
    "fading Hebb": Memory("retention", shared_codes, keep=GAMMA, gated=False),
    "write gate": Memory("gated"),
    "delta, b = .05": Memory("delta", rate=0.05, options=(("b", 0.05),)),
    "delta, b = .2": Memory("delta", rate=0.2, options=(("b", 0.2),)),
    "delta, b = 1": Memory("delta", rate=1.0, options=(("b", 1.0),)),
    "least squares": Memory("least-squares", solves=True),
    "two banks": Memory("full-bank", bank_codes),
}


def play(
    rng: np.random.Generator, memory: Memory, V: int, N_f: int, D: int, N: int, batch: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Of one draw of the codes on `batch` sequences of AR and MQAR: how many values beat the right one, by query."""
    codes = memory.codes(rng, V, N_f, D, N)
    tokens, keys, values, asked = draw_sequences(rng, V, N_f, 4 * N_f, batch)
    words = codes.value[V // 2 :]
    rows, n = np.arange(batch), codes.key.shape[1]
    S, H = np.zeros((batch, 2, words.shape[1], n)), np.zeros((batch, 2, n, n)) + 1e-9 * np.eye(n)

    def rank(some: NDArray[np.int64], fact: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many values have a larger logit than the right one, when some sequences are asked for a fact."""
        token = keys[some, fact]
        q, bank = codes.query[token], codes.bank[token]
        if memory.solves:
            q = np.linalg.solve(H[some, bank], q[..., None])[..., 0]
        logits = np.einsum("bdn,bn->bd", S[some, bank], q) @ words.T
        own = np.take_along_axis(logits, (values[some, fact] - V // 2)[:, None], axis=1)
        return np.asarray((logits > own).sum(-1))

    ar, mqar = [], []
    for t in range(1, 4 * N_f):
        before, now = tokens[:, t - 1], tokens[:, t]
        written = ((before < V // 2) & (now >= V // 2)) | (not memory.gated)
        k, v, bank = codes.key[before] * written[:, None], codes.value[now], codes.bank[before]
        old = 0 if memory.rate is None else np.einsum("bdn,bn->bd", S[rows, bank], k)
        S *= memory.keep
        S[rows, bank] += (memory.rate or 1) * (v - old)[:, :, None] * k[:, None, :]
        if memory.solves:
            H[rows, bank] += k[:, :, None] * k[:, None, :]
        if t == 2 * N_f - 1:
            ar += [rank(rows, np.full(batch, fact)) for fact in range(N_f)]
        some, fact = np.nonzero(asked == t)
        mqar += [rank(some, fact)] if len(some) else []
    return np.concatenate(ar), np.concatenate(mqar)


def measure(name: str, V: int, N_f: int, D: int, N: int, *, draws: int, batch: int, seed: int) -> list[Row]:
    """A row for AR and one for MQAR: mean over the draws, its standard error, and what the law says."""
    memory = MEMORIES[name]
    rng = np.random.default_rng([seed, list(MEMORIES).index(name), V, N_f, D, N])
    drawn = [play(rng, memory, V, N_f, D, N, batch) for _ in range(draws)]
    accuracy = np.array([[np.mean(ranks == 0) for ranks in tasks] for tasks in drawn])
    rows = []
    for task, column in (("ar", accuracy[:, 0]), ("mqar", accuracy[:, 1])):
        words = {"vocab_size": V, "num_facts": N_f, "embed_dim": D, "state_dim": N, "task": task}
        p = float(find_law(memory.law)(**words, **dict(memory.options)))
        row: Row = {"memory": name, "law": memory.law, "task": task, "V": V, "N_f": N_f, "L": 4 * N_f, "D": D, "N": N}
        row |= {"draws": draws, "queries": draws * batch * N_f, "measured": round(float(column.mean()), 6)}
        row["standard_error"] = round(float(column.std(ddof=1) / np.sqrt(draws)), 6)
        rows.append(row | {"predicted": round(p, 6), "error": round(p - float(column.mean()), 6)})
    return rows


def table(rows: list[Row], seed: int) -> str:
    """Errors of every law by memory and task, then every cell, as Markdown."""
    lines = [
        "# Memories of explicit codes against their laws",
        "",
        f"Written by `results/theory/memories_monte_carlo.py` (seed {seed}); the same numbers are in "
        "`memories_monte_carlo.csv`.",
        "Tight frames drawn at random; errors are predicted minus measured.",
        "",
        "| memory | law | task | cells | mean s.e. | mean error | largest | bias |",
        "|---" * 8 + "|",
    ]
    for name, memory in MEMORIES.items():
        for task in ("ar", "mqar"):
            mine = [row for row in rows if (row["memory"], row["task"]) == (name, task)]
            error = np.array([row["error"] for row in mine])
            noise = np.mean([row["standard_error"] for row in mine])
            lines.append(
                f"| {name} | {memory.law} | {task} | {len(mine)} | {noise:.4f} | {abs(error).mean():.4f} | "
                f"{abs(error).max():.3f} | {error.mean():+.4f} |"
            )
    cells = list(dict.fromkeys((row["V"], row["N_f"], row["D"], row["N"]) for row in rows))
    lines += ["", "MQAR, cell by cell: measured / predicted.", ""]
    lines += ["| V, N_f, D, N | " + " | ".join(MEMORIES) + " |", "|---" * (1 + len(MEMORIES)) + "|"]
    for cell in cells:
        here = {r["memory"]: r for r in rows if (r["V"], r["N_f"], r["D"], r["N"], r["task"]) == (*cell, "mqar")}
        found = (f"{here[m]['measured']:.3f} / {here[m]['predicted']:.3f}" if m in here else "-" for m in MEMORIES)
        lines.append(f"| {', '.join(map(str, cell))} | " + " | ".join(found) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure every cell, then write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="owner of all draws (default 0)")
    parser.add_argument("--num-draws", type=int, default=10, help="draws of the codes per cell (default 10)")
    parser.add_argument("--batch", type=int, default=50, help="sequences per draw (default 50)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder to write to")
    args = parser.parse_args()
    rows: list[Row] = []
    start = time.monotonic()
    for name, memory in MEMORIES.items():
        for cell in CELLS:
            if memory.codes is shared_codes and cell[3] > cell[2] / 2:
                continue  # the rank of trained keys has a cap there, which is the law's own
            rows += measure(name, *cell, draws=args.draws, batch=args.batch, seed=args.seed)
        print(f"{name}  {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    with (args.out / "memories_monte_carlo.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (args.out / "memories_monte_carlo.md").write_text(table(rows, args.seed), encoding="utf-8")


if __name__ == "__main__":
    main()
