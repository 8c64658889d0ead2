"""Designed models measured over the D-N cells of regimes (i)-(iii), beside the law `designed-improved`.

python results/designed/make.py [--num-draws 60] [--sequences 40] [--seed 0]

Each cell is the mean over independent draws of the weights (App. E.1), scored by the package's own model and
evaluation; the laws'
own Monte Carlo, in numpy and from scratch, is in results/theory. Writes cells.csv and README.md beside this file.
"""

import argparse
import csv
import sys
from pathlib import Path
from statistics import mean, stdev

import torch

from recallscope.circuits.linear import designed_circuit
from recallscope.specs import parse_task
from recallscope.theory.law import find_law
from recallscope.train.evaluate import evaluate

HERE = Path(__file__).parent
REGIMES = {"i": (1024, 16), "ii": (512, 32), "iii": (512, 16)}
DIMS = (8, 16, 24, 32, 48, 64)
LAWS = ("designed-improved", "designed-exact", "designed-unified-mv", "designed-unified")


def main() -> None:
    """Measure every cell, then write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-draws", type=int, default=60)
    parser.add_argument("--sequences", type=int, default=40, help="per draw")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for regime, (V, N_f) in REGIMES.items():
        for kind in ("ar", "mqar"):
            task = parse_task({"kind": kind, "vocab_size": V, "num_facts": N_f})
            sequences = arguments.sequences * (N_f if kind == "ar" else 1)  # as many queries as MQAR gives
            for D in DIMS:
                for N in (n for n in DIMS if n <= D):
                    generator = torch.Generator().manual_seed(arguments.seed * 10**6 + 1000 * D + N)
                    scores = [
                        evaluate(designed_circuit(V, D, N, generator), task, sequences, generator).accuracy
                        for _ in range(arguments.draws)
                    ]
                    words = {"vocab_size": V, "num_facts": N_f, "embed_dim": D, "state_dim": N, "task": kind}
                    predicted = {name: float(find_law(name)(**words)) for name in LAWS}
                    error = stdev(scores) / arguments.draws**0.5
                    rows.append(
                        {
                            "regime": regime,
                            "task": kind,
                            "V": V,
                            "N_f": N_f,
                            "D": D,
                            "N": N,
                            "measured": mean(scores),
                            "standard_error": error,
                            **predicted,
                        }
                    )
                    print(
                        f"{regime} {kind} D={D} N={N} {mean(scores):.4f} {predicted['designed-improved']:.4f}",
                        file=sys.stderr,
                    )
    with open(HERE / "cells.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.5f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows)
    write_table(rows, arguments)


def write_table(rows: list[dict], arguments: argparse.Namespace) -> None:
    """Mean and largest error of each law, per regime and task."""
    lines = [
        "# Hand-constructed models against their laws",
        "",
        f"Made by `{' '.join(['python', 'results/designed/make.py', *sys.argv[1:]])}`: {len(rows)} settings, "
        f"{arguments.draws} draws of the weights each. Mean standard error {mean(row['standard_error'] for row in rows):.4f}.",
        "",
        "Mean / largest absolute error:",
        "",
        "| regime | task | cells | " + " | ".join(LAWS) + " |",
        "|---|---|---|" + "---|" * len(LAWS),
    ]
    groups = [(r, t) for r in REGIMES for t in ("ar", "mqar")] + [("all", "all")]
    for regime, task in groups:
        chosen = [row for row in rows if regime in ("all", row["regime"]) and task in ("all", row["task"])]
        errors = [[abs(row[name] - row["measured"]) for row in chosen] for name in LAWS]
        lines.append(
            f"| {regime} | {task} | {len(chosen)} | "
            + " | ".join(f"{mean(e):.4f} / {max(e):.4f}" for e in errors)
            + " |"
        )
    (HERE / "README.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
