"""How often the right value is among the k best of a memory with explicit codes, against the laws.

The memories, codes and sequences are those of `memories_monte_carlo.py`; nothing of recallscope takes part in the
measurement. Writes `top_k_monte_carlo.csv` and `.md` beside this file:

    OMP_NUM_THREADS=1 python results/theory/top_k_monte_carlo.py
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from memories_monte_carlo import CELLS, MEMORIES, play
from numpy.typing import NDArray

from recallscope.theory.law import find_law

HERE = Path(__file__).resolve().parent
PLAYED = ("Hebb", "write gate", "delta, b = .2", "least squares")
KS = (1, 2, 5, 10)
DRAWS, BATCH = 6, 40
Row = dict[str, Any]


def measure(name: str, cell: tuple[int, int, int, int], seed: int = 0) -> list[Row]:
    """A row for every k: MQAR, mean over the draws of the codes."""
    memory = MEMORIES[name]
    rng = np.random.default_rng([seed, list(MEMORIES).index(name), *cell])
    ranks: list[NDArray[np.int64]] = [play(rng, memory, *cell, BATCH)[1] for _ in range(DRAWS)]
    sizes = dict(zip(("vocab_size", "num_facts", "embed_dim", "state_dim"), cell, strict=True))
    rows = []
    for k in KS:
        shares = np.array([np.mean(one < k) for one in ranks])
        p = float(find_law(memory.law)(**sizes, **dict(memory.options), top_k=k))
        row: Row = {"memory": name, "law": memory.law, **dict(zip(("V", "N_f", "D", "N"), cell, strict=True)), "k": k}
        row |= {"measured": round(float(shares.mean()), 5)}
        row |= {"standard_error": round(float(shares.std(ddof=1) / DRAWS**0.5), 5), "predicted": round(p, 5)}
        rows.append(row | {"error": round(p - float(shares.mean()), 5)})
    return rows


def page(rows: list[Row]) -> str:
    """Errors by memory and k, as Markdown."""
    lines = ["# The right value among the k best: memories of explicit codes against their laws", "",
             "Written by `results/theory/top_k_monte_carlo.py`: MQAR, the settings of `memories_monte_carlo.md`. Errors",
             "are predicted minus measured.", "",
             "| memory | law | k | settings | mean s.e. | mean error | largest | bias |", "|---" * 8 + "|"]  # fmt: skip
    for name in PLAYED:
        for k in KS:
            mine = [row for row in rows if (row["memory"], row["k"]) == (name, k)]
            error, noise = np.array([row["error"] for row in mine]), np.mean([row["standard_error"] for row in mine])
            lines.append(f"| {name} | {mine[0]['law']} | {k} | {len(mine)} | {noise:.4f} | {abs(error).mean():.4f} | "
                         f"{abs(error).max():.3f} | {error.mean():+.4f} |")  # fmt: skip
    return "\n".join(lines) + "\n"


def main() -> None:
    rows, start = [], time.monotonic()
    for name in PLAYED:
        for cell in CELLS:
            if name != "Hebb" or cell[3] <= cell[2] / 2:  # the rank of trained keys has a cap there
                rows += measure(name, cell)
        print(f"{name}  {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    with (HERE / "top_k_monte_carlo.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (HERE / "top_k_monte_carlo.md").write_text(page(rows), encoding="utf-8")


if __name__ == "__main__":
    main()
