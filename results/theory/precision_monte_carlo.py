"""Play memories of random codes whose state is rounded after every token, and hold recall against the law.

Keys are random directions, words random on a sphere; a query counts as answered when the right word has the largest
inner product of all V. Nothing of recallscope takes part in the measurement. In two steps, so that the law cannot have
seen what it predicts:

    python results/theory/precision_monte_carlo.py predict           # writes precision_predictions.csv: commit it
    python results/theory/precision_monte_carlo.py measure           # reads it, writes precision_monte_carlo.csv and .md
    python results/theory/precision_monte_carlo.py amend             # adds what today's law says, in a column of its own

The committed predictions took the entries of a state for independent. They are not, as entries of one matrix share keys
and values: the largest of a row is smaller, and so is the step. `amended` is the law that plays matrices. It was
settled on the half `first`, after all halves had been measured.
"""

from __future__ import annotations

import csv
import itertools
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recallscope.state_precision import StatePrecision
from recallscope.theory.laws.precision import Memory, recall

Array = NDArray[np.float32]
HERE = Path(__file__).resolve().parent
PREDICTED, MEASURED = HERE / "precision_predictions.csv", HERE / "precision_monte_carlo.csv"
QUERIES = 2500  # at least, per setting
BIT_QUERIES = 12000  # fewer where many writes follow
BITS = range(3, 12)
MEMORY = ("vocab_size", "num_facts", "key_dim", "value_dim", "decay", "rate", "later_writes", "later_strength")
STORED = ("format", "scale", "step", "rounding", "residual_bits", "every")
FIELDS = ("half", "group", *MEMORY, *STORED)
LOSS = 0.01


def memory(V: int, N: int, D: int, n: int, **more: Any) -> Memory:
    return Memory(vocab_size=V, num_facts=n, key_dim=N, value_dim=D, **more)


FIRST = [memory(512, 32, 64, n) for n in (48, 96, 160)]  # here the form of the law was chosen
OTHER = [memory(512, 8, 32, 8), memory(512, 8, 32, 16), memory(512, 64, 64, 128), memory(512, 64, 64, 256),
         memory(4096, 32, 64, 64), memory(4096, 64, 64, 160)]  # fmt: skip


def settings() -> Iterator[tuple[str, str, Memory, StatePrecision]]:
    """Half, group, memory and format."""
    for half, cells in (("first", FIRST), ("other", OTHER)):
        for cell, rounding, bits, scale in itertools.product(
            cells, ("nearest", "stochastic"), (3, 4, 5, 6, 8), ("tensor", "row", "block16")
        ):
            group = "stochastic" if rounding == "stochastic" else "nearest, 5 bits and more"
            group = "nearest, 3 and 4 bits" if rounding == "nearest" and bits < 5 else group
            yield half, group, cell, StatePrecision.of(f"int{bits}", scale, rounding=rounding)
        for cell, name, rounding in itertools.product(
            cells, ("bf16", "fp16", "fp8-e4m3", "fp8-e5m2"), ("nearest", "stochastic")
        ):
            yield half, "floats", cell, StatePrecision.of(name, rounding=rounding)
        for cell, bits in itertools.product(cells, (2, 3, 4)):
            yield half, "once", cell, StatePrecision.of(f"int{bits}", every="once")
            yield half, "error feedback", cell, StatePrecision.of(f"int{bits}", rounding="error-feedback")
            yield half, "every 8 tokens", cell, StatePrecision.of(f"int{bits + 1}", "tensor", every=8)
        for cell, bits in itertools.product(cells, (3, 4)):
            kept = StatePrecision.of("int4", "tensor", rounding="error-feedback", residual_bits=bits)
            yield half, "error feedback in bits", cell, kept
        for cell, a, bits, rounding in itertools.product(
            cells[::2], (0.97, 0.99), (4, 6, 8), ("nearest", "stochastic")
        ):
            yield half, "decay", replace(cell, decay=a), StatePrecision.of(f"int{bits}", "row", rounding=rounding)
        for cell, a, name in itertools.product(cells[::2], (0.97, 0.99), ("fp8-e4m3", "fp8-e5m2", "bf16")):
            yield half, "decay, floats to the nearest", replace(cell, decay=a), StatePrecision.of(name)
        for cell, b, bits, rounding in itertools.product(
            cells[::2], (0.1, 0.5, 1.0), (4, 6, 8), ("nearest", "stochastic")
        ):
            yield half, "delta rule", replace(cell, rate=b), StatePrecision.of(f"int{bits}", "row", rounding=rounding)
        for cell, bits, rounding in itertools.product(cells[:1], (6, 8), ("nearest", "stochastic", "error-feedback")):
            longer = replace(cell, later_writes=1000, later_strength=0.1)
            yield half, "small writes later", longer, StatePrecision.of(f"int{bits}", "tensor", rounding=rounding)
        for cell, steps, rounding in itertools.product(cells[::2], (0.5, 1.0, 2.0), ("nearest", "stochastic")):
            step = steps / cell.key_dim**0.5
            yield half, "fixed scale", cell, StatePrecision.of("int8", "fixed", step=step, rounding=rounding)
        for cell, rounding in itertools.product(cells, ("nearest", "stochastic")):
            yield half, "fp4", cell, StatePrecision.of("fp4-e2m1", rounding=rounding)


def bit_cases() -> Iterator[tuple[Memory, str, str]]:
    """Memories whose recall is near .9 without rounding, and how their states are stored."""
    for cell in (
        memory(512, 8, 32, 8), memory(512, 32, 64, 60), memory(512, 64, 64, 124), memory(4096, 32, 64, 48),
        memory(512, 32, 64, 40, later_writes=100, later_strength=0.3),
        memory(512, 32, 64, 48, later_writes=400, later_strength=0.1), memory(512, 32, 64, 48, decay=0.99),
    ):  # fmt: skip
        for rounding, scale in (
            ("nearest", "tensor"), ("nearest", "row"), ("stochastic", "tensor"), ("stochastic", "row"),
            ("error-feedback", "tensor"),
        ):  # fmt: skip
            yield cell, rounding, scale


# The measurement: numpy, written apart from the package


def play(cell: Memory, formats: list[StatePrecision | None], queries: int, seed: int) -> NDArray[np.bool_]:
    """Which queries are answered correctly, per format, on the same codes; None rounds nothing."""
    rng = np.random.default_rng(seed)
    draws = max(4, -(-queries // cell.num_facts))
    right = []
    rows = max(1, 2_000_000 // (cell.key_dim * cell.value_dim + cell.vocab_size * cell.value_dim))
    for start in range(0, draws, rows):
        right.append(_play(cell, formats, min(rows, draws - start), rng))
    return np.concatenate(right, axis=1)


def _play(cell: Memory, formats: list[StatePrecision | None], count: int, rng: np.random.Generator) -> Any:
    n, N, D, V, T = cell.num_facts, cell.key_dim, cell.value_dim, cell.vocab_size, cell.tokens
    words = _unit(rng, (count, V, D)) * np.float32(D**0.5)
    keys = _unit(rng, (count, T, N))
    values = np.concatenate([words[:, :n], _unit(rng, (count, T - n, D)) * np.float32(D**0.5)], axis=1)
    found = []
    for precision in formats:
        noise = np.random.default_rng(rng.integers(2**62))
        carried = np.zeros((count, D, N), np.float32)
        for t in range(T):
            k, v = keys[:, t], values[:, t] * np.float32(1.0 if t < n else cell.later_strength)
            carried = np.float32(cell.decay) * carried
            if cell.rate:
                read = carried @ k[..., None]
                carried = carried + np.float32(cell.rate) * (v[..., None] - read) * k[:, None]
            else:
                carried = carried + v[..., None] * k[:, None]
            shown = carried
            last = t == T - 1
            if precision is None or (precision.every == "once" and not last):
                continue
            if precision.every == "once" or (t + 1) % precision.every == 0:
                shown = _rounded(carried, precision, noise)
                if precision.rounding == "error-feedback":
                    carried = shown + _kept(carried, shown, precision)
                else:
                    carried = shown
        read = keys[:, :n] @ shown.transpose(0, 2, 1)
        found.append(((read @ words.transpose(0, 2, 1)).argmax(axis=-1) == np.arange(n)).ravel())
    return np.stack(found)


def _unit(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    x = rng.standard_normal(shape, np.float32)
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


MANTISSA = {"bf16": (7, -126), "fp16": (10, -14), "fp8-e4m3": (3, -6), "fp8-e5m2": (2, -14), "fp4-e2m1": (1, 0)}
TOP = {"fp8-e4m3": 448.0, "fp8-e5m2": 57344.0, "fp16": 65504.0, "bf16": 3e38, "fp4-e2m1": 6.0}


def _scale(state: Array, precision: StatePrecision) -> Any:
    if precision.scale == "none":
        return np.float32(1)
    if precision.scale == "fixed":
        return np.float32(precision.step)
    size = np.abs(state)
    if precision.scale == "tensor":
        largest = size.max(axis=(1, 2), keepdims=True)
    elif precision.scale == "row":
        largest = size.max(axis=2, keepdims=True)
    elif precision.scale == "column":
        largest = size.max(axis=1, keepdims=True)
    else:
        largest = np.concatenate(
            [np.broadcast_to(part.max(axis=2, keepdims=True), part.shape)
             for part in np.split(size, range(16, state.shape[2], 16), axis=2)], axis=2
        )  # fmt: skip
    name = precision.format
    return np.maximum(largest, 1e-30) / np.float32(TOP.get(name) or 2 ** (int(name[3:]) - 1) - 1)


def _unit_at(x: Array, name: str) -> Any:
    if name not in MANTISSA:
        return np.float32(1)
    mantissa, least = MANTISSA[name]
    return np.exp2(np.maximum(np.floor(np.log2(np.maximum(np.abs(x), 1e-38))), least) - mantissa).astype(np.float32)


def _rounded(state: Array, precision: StatePrecision, noise: np.random.Generator) -> Array:
    d = _scale(state, precision)
    x, name = state / d, precision.format
    unit = _unit_at(x, name)
    if precision.rounding == "stochastic":
        codes = np.floor(x / unit + noise.random(x.shape, np.float32))
    else:
        codes = np.rint(x / unit)
    top = TOP.get(name) or 2 ** (int(name[3:]) - 1) - 1
    return (np.clip(codes * unit, -top, top) * d).astype(np.float32)


def _kept(state: Array, shown: Array, precision: StatePrecision) -> Array:
    if precision.residual_bits is None:
        return state - shown
    d = _scale(state, precision)
    unit = d * _unit_at(state / d, precision.format) / (2**precision.residual_bits - 2)
    return (np.rint((state - shown) / unit) * unit).astype(np.float32)


# Files


def predict() -> None:
    rows = []
    for half, group, cell, precision in settings():
        told = [getattr(cell, name) for name in MEMORY] + [getattr(precision, name) for name in STORED]
        rows.append([half, group, *told, round(recall(cell, precision), 5), round(recall(cell), 5)])
    for cell, rounding, scale in bit_cases():
        told, need = [getattr(cell, name) for name in MEMORY], needed(cell, rounding, scale)
        rows.append(["bits", "bits needed", *told, "int", scale, None, rounding, None, 1, need, round(recall(cell), 5)])
    with PREDICTED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*FIELDS, "predicted", "predicted_exact"])
        writer.writerows(rows)


def needed(cell: Memory, rounding: str, scale: str) -> int:
    """The fewest bits for the loss, by the law."""
    base, stored = recall(cell), lambda b: recall(cell, StatePrecision.of(f"int{b}", scale, rounding=rounding))
    return next((b for b in BITS if base - stored(b) <= LOSS), 99)


def amend() -> None:
    with MEASURED.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        cell, precision = parsed(row)
        bits = row["half"] == "bits"
        row["amended"] = str(needed(cell, row["rounding"], row["scale"]) if bits else round(recall(cell, precision), 5))
    keep(rows)
    write_page(rows)


def parsed(row: dict[str, str]) -> tuple[Memory, StatePrecision]:
    kinds = {"decay": float, "rate": float, "later_strength": float}
    cell = Memory(**{name: kinds.get(name, int)(row[name]) for name in MEMORY})
    name, every = row["format"], row["every"]
    more: dict[str, Any] = {"rounding": row["rounding"], "every": every if every == "once" else int(every)}
    more |= {"step": float(row["step"])} if row["step"] else {}
    more |= {"residual_bits": int(row["residual_bits"])} if row["residual_bits"] else {}
    return cell, StatePrecision.of("int3" if name == "int" else name, row["scale"], **more)


def measure(halves: tuple[str, ...]) -> None:
    with PREDICTED.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    done = []
    if MEASURED.exists():
        with MEASURED.open(encoding="utf-8") as file:
            done = [row for row in csv.DictReader(file) if row["half"] not in halves]
        now = {tuple(row[name] for name in FIELDS): row["predicted"] for row in rows}
        done = [row | {"predicted": now[tuple(row[name] for name in FIELDS)]} for row in done]
    start = time.time()
    wanted = [row for row in rows if row["half"] in halves]
    seed = 1000 * ("first", "other", "bits").index(halves[0])
    by_cell: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for row in wanted:
        by_cell.setdefault(tuple(row[name] for name in MEMORY), []).append(row)
    for number, group in enumerate(by_cell.values()):
        formats: list[StatePrecision | None] = [None]
        slots = []
        for row in group:
            cell, precision = parsed(row)
            if row["half"] == "bits":
                near = [b for b in BITS if abs(b - int(row["predicted"])) <= 2]
                more = [StatePrecision.of(f"int{b}", row["scale"], rounding=row["rounding"]) for b in near]
            else:
                more = [precision]
            slots.append((len(formats), len(more)))
            formats += more
        few = all(row["half"] != "bits" for row in group)
        right = play(cell, formats, QUERIES if few else BIT_QUERIES // (1 + cell.later_writes // 200), seed + number)
        exact = right[0].mean()
        for row, (first, count) in zip(group, slots, strict=True):
            here = right[first : first + count].mean(axis=1)
            if row["half"] == "bits":
                near = [b for b in BITS if abs(b - int(row["predicted"])) <= 2]
                value = next((b for b, p in zip(near, here, strict=True) if exact - p <= LOSS), 99)
                error = float((right[0] != right[first + count // 2]).mean() ** 0.5 / right.shape[1] ** 0.5)
            else:
                value, error = round(float(here[0]), 5), float((here[0] * (1 - here[0]) / right.shape[1]) ** 0.5)
            row |= {"measured": str(value), "measured_exact": f"{exact:.5f}", "standard_error": f"{error:.5f}"}
            done.append(row)
        print(f"{number + 1}/{len(by_cell)} {time.time() - start:.0f} s", file=sys.stderr, flush=True)
        keep(done)


def keep(done: list[dict[str, str]]) -> None:
    done.sort(key=lambda row: ("first", "other", "bits").index(row["half"]))
    with MEASURED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(done[-1]), extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(done)


def write_page(rows: list[dict[str, str]]) -> None:
    """Errors by group and half, and the bits case by case."""
    lines = [
        "# Rounded states against their law",
        "",
        "Written by `results/theory/precision_monte_carlo.py`; predictions are those of `precision_predictions.csv`,"
        " which was committed",
        "before the halves `other` and `bits` were played; the form of the law was settled on"
        " `first`. Errors are predicted minus measured; *exact* is the error of",
        "the law without any rounding. *Amended* is today's law, which plays matrices where the committed predictions took"
        " entries for independent;",
        "it was settled on `first` after all halves had been measured.",
        "",
        "| half | group | settings | mean absolute error | largest | bias | amended: error | largest | bias | exact |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for half in ("first", "other"):
        groups: dict[str, list[dict[str, str]]] = {}
        for row in rows:
            groups.setdefault(row["group"], []).extend([row] * (row["half"] == half))
        for name, found in groups.items():
            if not found:
                continue
            cells = []
            for law in ("predicted", "amended"):
                off = np.array([float(row[law]) - float(row["measured"]) for row in found])
                cells.append(f"{np.abs(off).mean():.3f} | {np.abs(off).max():.3f} | {off.mean():+.3f}")
            base = [abs(float(row["predicted_exact"]) - float(row["measured_exact"])) for row in found]
            lines.append(f"| {half} | {name} | {len(found)} | {' | '.join(cells)} | {np.mean(base):.3f} |")
    cases = [row for row in rows if row["half"] == "bits"]
    for law, name in (("predicted", "Committed"), ("amended", "Amended")):
        apart = [abs(int(row[law]) - int(row["measured"])) for row in cases]
        lines += ["", f"{name}: least bits for a loss of at most {LOSS} recall are equal in {apart.count(0)} of "
                  f"{len(apart)} cases, off by one in {apart.count(1)}, by more in {sum(a > 1 for a in apart)}."]  # fmt: skip
    lines += ["", "| V, N, D, facts, later writes (strength), decay | rounding | scale | recall, exact | law | amended |"
              " measured |", "|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in cases:
        place = (f"{row['vocab_size']}, {row['key_dim']}, {row['value_dim']}, {row['num_facts']}, "
                 f"{row['later_writes']} ({row['later_strength']}), {row['decay']}")  # fmt: skip
        lines.append(f"| {place} | {row['rounding']} | {row['scale']} | {float(row['measured_exact']):.3f} | "
                     f"{row['predicted']} | {row['amended']} | {row['measured']} |")  # fmt: skip
    (HERE / "precision_monte_carlo.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    if what == "predict":
        predict()
    elif what == "measure":
        measure(tuple(sys.argv[2:]) or ("first", "other", "bits"))
        amend()
    elif what == "amend":
        amend()
    else:
        sys.exit(__doc__)
