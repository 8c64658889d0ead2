"""Play memories on tasks with correlated keys, with drawn codes, and hold their recall against the laws.

Codes are explicit tight frames, one for every place of a key, and values words of another; keys have length 1. A query
counts as answered when the right value has the largest logit of all V/2 values; every fact is asked, and queries leave
the state alone. Nothing of recallscope takes part in the measurement. In three steps, so that what was chosen on half
of the settings is checked on the other half:

    python results/theory/template_monte_carlo.py develop    # measures the first half: choose the laws' forms
    python results/theory/template_monte_carlo.py predict    # template_predictions.csv, of the second half: commit it
    python results/theory/template_monte_carlo.py check      # measures the second half; template_monte_carlo.md
"""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from memories_monte_carlo import frame
from numpy.typing import NDArray

from recallscope.theory.law import find_law

Array = NDArray[np.float64]
Row = dict[str, Any]
HERE = Path(__file__).resolve().parent
DEVELOPED, PREDICTED, CHECKED = (HERE / f"template_{name}.csv" for name in ("developed", "predictions", "checked"))
WORLDS = {
    "m=2, rho=0": {"key_tokens": 2}, "m=2, rho=0.5": {"key_tokens": 2, "rho": 0.5},
    "m=2, rho=1": {"key_tokens": 2, "rho": 1.0}, "m=3, rho=1": {"key_tokens": 3, "rho": 1.0},
    "m=4, rho=0.8": {"key_tokens": 4, "rho": 0.8}, "table 4 x 4": {"rows": 4, "columns": 4},
    "table 3 x 8": {"rows": 3, "columns": 8}, "table 6 x 6": {"rows": 6, "columns": 6},
}  # fmt: skip
SIZES = [(512, 16, 32, 16), (512, 16, 32, 8), (1024, 12, 48, 8), (256, 16, 64, 4)]  # V, N_f, D, N
HALVES = {
    half: [(world, size) for i, world in enumerate(WORLDS) for j, size in enumerate(SIZES) if (i + j) % 2 == odd]
    for odd, half in enumerate(("develop", "check"))
}
RATES = (0.05, 0.15, 0.4)
DRAWS, BATCH = 16, 40
ONE_NUMBER = "addition, N_eff"  # the same memory, by the law of one number
LAWS: dict[str, tuple[str, dict[str, float]]] = {
    "addition": ("template-addition", {}),
    ONE_NUMBER: ("template-effective", {}),
    **{f"delta, b = {b:g}": ("template-delta", {"b": b}) for b in RATES},
    "least squares": ("template-least-squares", {}),
}


def keys_of(rng: np.random.Generator, world: dict[str, float], V: int, N_f: int, N: int) -> Array:
    """Keys of BATCH contexts, (context, fact, N), with fresh codes."""
    half, m = V // 2, int(world.get("key_tokens", 2))
    rows, columns = int(world.get("rows", 0)), int(world.get("columns", 0))
    codes = [frame(rng, N, half).T for _ in range(m)]
    keys = np.zeros((BATCH, N_f, N))
    for context in range(BATCH):
        tokens = list(rng.permutation(half))
        template = [tokens.pop() for _ in range(m)]
        if rows:
            row_tokens, column_tokens = ([tokens.pop() for _ in range(count)] for count in (rows, columns))
            drawn = [(row_tokens[cell // columns], column_tokens[cell % columns])
                     for cell in rng.permutation(rows * columns)[:N_f]]  # fmt: skip
        else:
            drawn = []
            for own in rng.integers(m, size=N_f):
                shared = rng.random(m) < world.get("rho", 0)
                drawn.append([template[p] if shared[p] and p != own else tokens.pop() for p in range(m)])
        for fact, key in enumerate(drawn):
            keys[context, fact] = sum(code[token] for code, token in zip(codes, key, strict=True))
    return keys / np.linalg.norm(keys, axis=-1, keepdims=True)


def play(rng: np.random.Generator, world: dict[str, float], V: int, N_f: int, D: int, N: int) -> dict[str, Array]:
    """Right answers of every memory on the same contexts, (context, fact)."""
    keys, words = keys_of(rng, world, V, N_f, N), frame(rng, D, V // 2).T
    values = np.stack([rng.permutation(V // 2)[:N_f] for _ in range(BATCH)])
    v = words[values]

    def right(read: Array) -> Array:
        return np.asarray((read @ words.T).argmax(-1) == values, float)

    def rule(rate: float | None) -> Array:
        S = np.zeros((BATCH, D, N))
        for fact in range(N_f):
            k = keys[:, fact]
            old = 0 if rate is None else np.einsum("bdn,bn->bd", S, k)
            S += (rate or 1) * (v[:, fact] - old)[:, :, None] * k[:, None, :]
        return right(np.einsum("bdn,bin->bid", S, keys))

    solved = np.linalg.pinv(keys, rcond=1e-6) @ v  # the map from keys to values of least squared error
    found = {"addition": rule(None), **{f"delta, b = {b:g}": rule(b) for b in RATES}}
    return found | {"least squares": right(keys @ solved)}


def predicted(memory: str, world: dict[str, float], size: tuple[int, int, int, int], law: str | None = None) -> float:
    name, options = LAWS[memory]
    V, N_f, D, N = size
    sizes = {"vocab_size": V, "num_facts": N_f, "embed_dim": D, "state_dim": N, "task": "template_ar"}
    return float(find_law(law or name)(**sizes, **world, **options))


def measure(half: str, told: dict[tuple[str, ...], float] | None = None, seed: int = 0) -> list[Row]:
    """Every setting of a half and every memory: mean over the draws, its standard error, and what the law says."""
    rows, start = [], time.monotonic()
    for world, size in HALVES[half]:
        rng = np.random.default_rng([seed, list(WORLDS).index(world), *size])
        draws = [play(rng, WORLDS[world], *size) for _ in range(DRAWS)]
        for memory in LAWS:
            played = "addition" if memory == ONE_NUMBER else memory
            means = np.array([draw[played].mean() for draw in draws])
            cell = {"keys": world, **dict(zip(("V", "N_f", "D", "N"), size, strict=True)), "memory": memory}
            p = predicted(memory, WORLDS[world], size) if told is None else told[tuple(map(str, cell.values()))]
            row = cell | {"queries": DRAWS * BATCH * size[1], "measured": round(float(means.mean()), 5)}
            row |= {"standard_error": round(float(means.std(ddof=1) / DRAWS**0.5), 5), "predicted": round(p, 5)}
            rows.append(row | {"error": round(p - float(means.mean()), 5)})
        print(f"{world} {size}  {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
    return rows


def write(path: Path, rows: list[Row]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def predict() -> list[Row]:
    """The laws' numbers for the second half, before it is measured."""
    names = ("V", "N_f", "D", "N")
    return [
        {"keys": world, **dict(zip(names, size, strict=True)), "memory": memory}
        | {"predicted": round(predicted(memory, WORLDS[world], size), 5)}
        for world, size in HALVES["check"]
        for memory in LAWS
    ]


def page(developed: list[Row], checked: list[Row]) -> str:
    """Errors by memory in both halves, then every setting, as Markdown."""
    lines = ["# Correlated keys: memories of explicit codes against their laws", "",
             "Written by `results/theory/template_monte_carlo.py`. The forms of the laws were chosen with the first half",
             "of the settings in view; predictions for the second half (`template_predictions.csv`) were committed before",
             "it was measured. Errors are predicted minus measured.", "",
             "| memory | law | half | settings | mean s.e. | mean error | largest | bias |", "|---" * 8 + "|"]  # fmt: skip
    for memory, (law, _) in LAWS.items():
        for half, rows in (("first", developed), ("second", checked)):
            mine = [row for row in rows if row["memory"] == memory]
            error = np.array([float(row["error"]) for row in mine])
            noise = np.mean([float(row["standard_error"]) for row in mine])
            lines.append(f"| {memory} | {law} | {half} | {len(mine)} | {noise:.4f} | {abs(error).mean():.4f} | "
                         f"{abs(error).max():.3f} | {error.mean():+.4f} |")  # fmt: skip
    lines += ["", "Measured / predicted.", "", "| keys | V, N_f, D, N | half | " + " | ".join(LAWS) + " |",
              "|---" * (3 + len(LAWS)) + "|"]  # fmt: skip
    for half, rows in (("first", developed), ("second", checked)):
        for cell in dict.fromkeys((row["keys"], row["V"], row["N_f"], row["D"], row["N"]) for row in rows):
            here = {r["memory"]: r for r in rows if (r["keys"], r["V"], r["N_f"], r["D"], r["N"]) == cell}
            found = (f"{float(here[m]['measured']):.3f} / {float(here[m]['predicted']):.3f}" for m in LAWS)
            lines.append(f"| {cell[0]} | {', '.join(map(str, cell[1:]))} | {half} | " + " | ".join(found) + " |")
    return "\n".join(lines) + "\n"


def main(step: str) -> None:
    if step == "develop":
        write(DEVELOPED, measure("develop"))
    elif step == "predict":
        write(PREDICTED, predict())
    else:
        told = {tuple(row[name] for name in list(row)[:-1]): float(row["predicted"]) for row in read(PREDICTED)}
        write(CHECKED, measure("check", told))
        (HERE / "template_monte_carlo.md").write_text(page(read(DEVELOPED), read(CHECKED)), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] not in (["develop"], ["predict"], ["check"]):
        sys.exit(__doc__)
    main(sys.argv[1])
