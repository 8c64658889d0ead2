"""Trained models whose state is rounded after every token, held against the law fed with the unrounded model.

Committed weights are read from results/paper; STORE is a folder of runs with weights, as `recallscope sweep` keeps them.
In two steps, so that the law cannot have seen what it predicts:

    python results/theory/precision_trained.py predict STORE     # writes precision_trained_predictions.csv: commit it
    python results/theory/precision_trained.py measure STORE     # reads it, writes precision_trained.csv and .md

`predict` and `measure` without STORE are about single roundings of the committed weights: precision_once*.csv and .md.
The first law took the error of every entry for noise of a twelfth of a step squared. An entry far below a step is lost
instead, so today's law takes from every entry of the unrounded state the gain that rounding leaves it, and the noise
that is left. It was written after the rows `amended` had been measured, and before those called `blind`.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import torch

from recallscope.architectures.capabilities import StepsState
from recallscope.architectures.stored_state import StoredState
from recallscope.measuring.stored_states import predicted_recall
from recallscope.state_precision import StatePrecision
from recallscope.studies.own.state_precision import FORMATS as ALL_FORMATS
from recallscope.studies.own.state_precision import SEED, SEQUENCES
from recallscope.train.evaluate import evaluate
from recallscope.train.weights import read_weights

HERE = Path(__file__).resolve().parent
ONCE = {
    "int3 once": ("amended", StatePrecision.of("int3", "tensor", every="once")),
    "int3 error feedback": ("amended", StatePrecision.of("int3", "tensor", rounding="error-feedback")),
    "int2 once": ("blind, 2 bits", StatePrecision.of("int2", "tensor", every="once")),
    "int4 once": ("blind, 3 and 4 bits", StatePrecision.of("int4", "tensor", every="once")),
    "int3 once, rows": ("blind, 3 and 4 bits", StatePrecision.of("int3", "row", every="once")),
    "int2 error feedback, rows": ("blind, 2 bits", StatePrecision.of("int2", "row", rounding="error-feedback")),
}
STORE = Path(sys.argv[2]) if len(sys.argv) > 2 else None
FORMATS, NAME = (ONCE, "precision_once") if STORE is None else (ALL_FORMATS, "precision_trained")
PREDICTED, MEASURED = HERE / f"{NAME}_predictions.csv", HERE / f"{NAME}.csv"


def weights() -> list[tuple[str, Path]]:
    """Every file of weights of models with a state, the committed ones first."""
    return [
        (source, path)
        for source, root in (("committed", HERE.parents[0] / "paper"), ("new", STORE))
        if root is not None
        for path in sorted(root.glob("runs/*/weights.safetensors"))
    ]


def predict() -> None:
    with PREDICTED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ["source", "run", "model", "num_facts", "embed_dim", "state_dim", "format", "exact", "predicted"]
        )
        for source, path in weights():
            model, task = read_weights(path)
            if model.why_not(StepsState) is not None:
                continue
            sizes = task.num_facts, model.spec.embed_dim, model.spec.state_dim
            exact = evaluate(model, task, SEQUENCES, SEED).accuracy
            for name, (_, precision) in FORMATS.items():
                found = predicted_recall(model, task, precision, SEQUENCES, SEED)
                told = [source, path.parent.name, model.spec.kind, *sizes, name]
                writer.writerow([*told, round(exact, 5), round(found, 5)])
            file.flush()
            print(path.parent.name[:8], model.spec.kind, *sizes, file=sys.stderr, flush=True)


def measure() -> None:
    places = {path.parent.name: path for _, path in weights()}
    with PREDICTED.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    loaded = ("", None, None)
    for row in rows:
        if loaded[0] != row["run"]:
            loaded = (row["run"], *read_weights(places[row["run"]]))
        _, model, task = loaded
        score = evaluate(StoredState(model, FORMATS[row["format"]][1], seed=SEED), task, SEQUENCES, SEED)
        row |= {"measured": f"{score.accuracy:.5f}", "standard_error": f"{score.standard_error:.5f}"}
    with MEASURED.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    write_page(rows)


def write_page(rows: list[dict[str, str]]) -> None:
    lines = ["# Trained models with rounded states, against the law", "",
             "Written by `results/theory/precision_trained.py`; predictions were committed before the measurement, but for "
             "the group `amended`.", "",
             "| group | rows | mean absolute error | largest | bias |", "|---|---|---|---|---|"]  # fmt: skip
    for group in dict.fromkeys(group for group, _ in FORMATS.values()):
        here = [row for row in rows if FORMATS[row["format"]][0] == group]
        off = np.array([float(row["predicted"]) - float(row["measured"]) for row in here])
        lines.append(
            f"| {group} | {len(off)} | {np.abs(off).mean():.3f} | {np.abs(off).max():.3f} | {off.mean():+.3f} |"
        )
    lines += [
        "",
        f"Measured (law), {SEQUENCES} sequences each, one scale per head unless the format says rows.",
        "",
        "| model, D, N, facts | exact | " + " | ".join(FORMATS) + " |",
        "|---" * (len(FORMATS) + 2) + "|",
    ]
    for run in dict.fromkeys(row["run"] for row in rows):
        here = {row["format"]: row for row in rows if row["run"] == run}
        one = next(iter(here.values()))
        name = f"{one['model']} {one['embed_dim']}, {one['state_dim']}, {one['num_facts']}"
        cells = [f"{float(here[f]['measured']):.3f} ({float(here[f]['predicted']):.3f})" for f in FORMATS]
        lines.append(f"| {name} | {float(one['exact']):.3f} | " + " | ".join(cells) + " |")
    MEASURED.with_suffix(".md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    torch.set_num_threads(1)
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in ("predict", "measure"):
        sys.exit(__doc__)
    {"predict": predict, "measure": measure}[sys.argv[1]]()
