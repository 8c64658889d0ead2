"""Play the designed model with drawn weights and sequences, and hold its recall against the laws.

The weights are those of App. E.1 (`app-subsec:designed-weights`), the sequences MQAR's as zoology draws them, with
random filler; a query counts as answered when the right value has the largest of all V logits. Nothing of recallscope
takes part in the measurement. Writes `designed_monte_carlo.md` beside this file, and all cells to
results/paper/designed/monte-carlo.csv, where the table of laws finds them:

    OMP_NUM_THREADS=1 python results/theory/designed_monte_carlo.py
"""

from __future__ import annotations

import argparse
import csv
import sys
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from recallscope.theory.law import find_law
from recallscope.theory.problem import Problem

REGIMES = {"i": (1024, 16, 64), "ii": (512, 32, 128), "iii": (512, 16, 64)}  # V, N_f, L of Sec. 5
SIZES = (8, 16, 24, 32, 48, 64, 96)
GRID = [(D, N) for D in SIZES for N in SIZES if N <= D]
# longer than 4 N_f: some slots then hold filler only (V, N_f, L, D, N)
LONG = [
    (512, 16, 96, 48, 16), (512, 16, 128, 48, 16), (512, 16, 128, 64, 32), (512, 16, 256, 64, 32),
    (512, 16, 400, 64, 48), (512, 8, 64, 32, 8), (512, 8, 128, 64, 16), (512, 4, 256, 32, 16),
    (256, 8, 200, 64, 32), (128, 8, 256, 64, 32), (1024, 16, 320, 80, 8), (1024, 32, 512, 96, 64),
]  # fmt: skip
LAWS = ("improved", "exact", "unified-mv", "unified")
FIELDS = ["regime", "task", "V", "N_f", "L", "D", "N", "draws", "queries", "measured", "standard_error", *LAWS, "error"]
Row = dict[str, str | int | float]


def draw_weights(rng: np.random.Generator, V: int, D: int, N: int) -> tuple[NDArray, NDArray]:
    """E (D V) with unit columns, F (N D) = sqrt(D/N) times N orthonormal rows."""
    E = rng.standard_normal((D, V), dtype=np.float32)
    E /= np.linalg.norm(E, axis=0)
    Q, _ = np.linalg.qr(rng.standard_normal((D, D)))
    return E, (np.sqrt(D / N) * Q[:, :N].T).astype(np.float32)


def draw_sequences(
    rng: np.random.Generator, V: int, N_f: int, L: int, batch: int
) -> tuple[NDArray, NDArray, NDArray, NDArray]:
    """Tokens (batch L), and for every fact its key, its value and the position of its query (batch N_f).

    Keys are distinct tokens of 1 .. V/2-1, values distinct tokens of V/2 .. V-1, every fact is asked once at an even
    place after the context, and all other places hold uniform draws from the whole vocabulary.
    """
    keys = 1 + rng.random((batch, V // 2 - 1)).argsort(-1)[:, :N_f]
    values = V // 2 + rng.random((batch, V - V // 2)).argsort(-1)[:, :N_f]
    asked = 2 * N_f + 2 * rng.random((batch, (L - 2 * N_f) // 2)).argsort(-1)[:, :N_f]
    tokens = rng.integers(0, V, (batch, L))
    tokens[:, 0 : 2 * N_f : 2], tokens[:, 1 : 2 * N_f : 2] = keys, values
    np.put_along_axis(tokens, asked, keys, axis=1)
    return tokens, keys, values, asked


def play(rng: np.random.Generator, V: int, N_f: int, L: int, D: int, N: int, batch: int) -> tuple[float, float]:
    """Accuracy of one draw of the weights on `batch` sequences: AR and MQAR.

    AR asks right after the context. Every fact of it is tried there in turn: the same chance, N_f times the data.
    """
    E, F = draw_weights(rng, V, D, N)
    E_tilde = F @ E
    tokens, keys, values, asked = draw_sequences(rng, V, N_f, L, batch)
    x, x_tilde = E.T[tokens], E_tilde.T[tokens]
    query = E_tilde.T[keys]
    # u_t = sum over tau <= t of (E x_tau) (E~ x_{tau-1}) . (E~ q): what the query reads out of the state
    match = query @ x_tilde[:, :-1].transpose(0, 2, 1)
    seen = np.arange(1, L) <= asked[:, :, None]
    u_mqar = (match * seen) @ x[:, 1:]
    end = 2 * N_f
    u_ar = match[:, :, : end - 1] @ x[:, 1:end] + match[:, :, end - 1 : end] * E.T[keys]

    def accuracy(u: NDArray) -> float:
        return float(((u.reshape(-1, D) @ E).argmax(-1) == values.ravel()).mean())

    return accuracy(u_ar), accuracy(u_mqar)


def measure(regime: str, V: int, N_f: int, L: int, D: int, N: int, *, draws: int, batch: int, seed: int) -> list[Row]:
    """One row per task, with the laws beside the measurement."""
    rng = np.random.default_rng([seed, V, N_f, L, D, N])
    accuracy = np.array([play(rng, V, N_f, L, D, N, batch) for _ in range(draws)])
    rows: list[Row] = []
    for k, task in enumerate(("ar", "mqar")):
        if task == "ar" and regime == "long":
            continue
        measured = accuracy[:, k].mean()
        row: Row = {"regime": regime, "task": task, "V": V, "N_f": N_f, "L": L, "D": D, "N": N, "draws": draws}
        row |= {"queries": draws * batch * N_f, "measured": round(float(measured), 6)}
        row["standard_error"] = round(float(accuracy[:, k].std(ddof=1) / np.sqrt(draws)), 6)
        words = {"task": task, "vocab_size": V, "num_facts": N_f, "length": L, "embed_dim": D, "state_dim": N}
        for name in LAWS:
            row[name] = round(float(find_law(f"designed-{name}")(Problem.from_words(words))), 6)
        row["error"] = round(float(row["improved"]) - float(measured), 6)
        rows.append(row)
    return rows


def table(rows: list[Row], seed: int) -> str:
    """Mean and largest error of every law, per regime and task, as Markdown."""
    lines = [
        "# The designed model against its laws",
        "",
        f"Written by `results/theory/designed_monte_carlo.py` (seed {seed}); all cells are in "
        "`results/paper/designed/monte-carlo.csv`.",
        "Entries are the mean and the largest absolute error of a law's recall probability over the cells of a row.",
        "`long` is MQAR with L > 4 N_f.",
        "",
        "| regime | V, N_f, L | task | cells | mean s.e. | "
        + " | ".join(f"designed-{name}" for name in LAWS)
        + " | bias of improved |",
        "|---" * (6 + len(LAWS)) + "|",
    ]
    groups = list(dict.fromkeys((row["regime"], row["task"]) for row in rows))
    for regime, task in groups:
        lines.append(_line(str(regime), str(task), [r for r in rows if (r["regime"], r["task"]) == (regime, task)]))
    regular = [r for r in rows if r["regime"] != "long"]
    lines.append(_line("i, ii, iii", "both", regular))
    lines.append(_line("those with .1 < p < .9", "both", [r for r in regular if 0.1 < float(r["measured"]) < 0.9]))
    return "\n".join(lines) + "\n"


def _line(regime: str, task: str, rows: list[Row]) -> str:
    measured = np.array([float(r["measured"]) for r in rows])
    where = {(r["V"], r["N_f"], r["L"]) for r in rows}
    cells = [regime, ", ".join(map(str, next(iter(where)))) if len(where) == 1 else "several", task, str(len(rows))]
    cells.append(f"{np.mean([float(r['standard_error']) for r in rows]):.4f}")
    for name in LAWS:
        error = np.abs(np.array([float(r[name]) for r in rows]) - measured)
        cells.append(f"{error.mean():.4f} / {error.max():.3f}")
    cells.append(f"{np.mean([float(r['error']) for r in rows]):+.4f}")
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Measure every cell, then write both files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0, help="owner of all draws (default 0)")
    parser.add_argument("--num-draws", type=int, default=300, help="draws of the weights per cell (default 300)")
    parser.add_argument("--batch", type=int, default=64, help="sequences per draw at L = 64 (default 64)")
    args = parser.parse_args()
    cells = [(regime, *sizes, D, N) for regime, sizes in REGIMES.items() for D, N in GRID]
    cells += [("long", *cell) for cell in LONG]
    rows: list[Row] = []
    start = time.monotonic()
    for done, (regime, V, N_f, L, D, N) in enumerate(cells, 1):
        batch = max(8, args.batch * 64 // L)
        rows += measure(regime, V, N_f, L, D, N, draws=args.draws, batch=batch, seed=args.seed)
        seconds = time.monotonic() - start
        print(f"{done}/{len(cells)}  regime {regime}  D={D} N={N}  {seconds:.0f} s", file=sys.stderr, flush=True)
    here = Path(__file__).parent
    with (here.parent / "paper" / "designed" / "monte-carlo.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    (here / "designed_monte_carlo.md").write_text(table(rows, args.seed), encoding="utf-8")


if __name__ == "__main__":
    main()
