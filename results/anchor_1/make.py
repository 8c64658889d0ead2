"""The authors' small linear grid, trained here, beside what they published and what the laws predict.

    recallscope sweep results/anchor_1/grid.toml --store results/anchor_1/store --workers 2 --json | tail -1 > results/anchor_1/sweep.json
    python results/anchor_1/make.py

Reads the store and writes README.md beside this file.
"""

import json
from pathlib import Path
from statistics import mean

from recallscope.records import parse_record
from recallscope.theory.catalogue import find_law

HERE = Path(__file__).parent
PUBLISHED = {  # (D, N): the accuracies released with the paper, two digits
    (16, 8): 0.24, (16, 16): 0.32,
    (32, 8): 0.64, (32, 16): 0.89, (32, 24): 0.94, (32, 32): 0.95,
    (48, 8): 0.82, (48, 16): 0.98, (48, 24): 1.0, (48, 32): 1.0,
    (64, 8): 0.89, (64, 16): 1.0, (64, 24): 1.0, (64, 32): 1.0,
}  # fmt: skip
LAWS = ("trained-sharing", "trained-t3max", "trained-t1", "unified-mv", "unified", "trained")


def main() -> None:
    """One row per cell, and the mean error of each law."""
    records = [parse_record(path.read_bytes()) for path in sorted((HERE / "store").glob("**/record.json"))]
    records.sort(key=lambda r: (r.spec.model.embed_dim, r.spec.model.state_dim))
    sweep = json.loads((HERE / "sweep.json").read_text())
    lines = [
        "# The authors' small grid: V=512, L=64, N_f=16, batch 32, 2000 steps, one seed",
        "",
        f"{len(records)} runs on two cores, one thread each: {sweep['seconds']:.0f} s in all, "
        f"{mean(r.seconds for r in records):.1f} s a run. The authors give about two minutes on one B200 GPU.",
        "",
        "| D | N | published | measured | difference | " + " | ".join(LAWS) + " | seconds |",
        "|---|---|---|---|---|" + "---|" * len(LAWS) + "---|",
    ]
    errors: dict[str, list[float]] = {name: [] for name in LAWS}
    differences = []
    for record in records:
        D, N = record.spec.model.embed_dim, record.spec.model.state_dim
        measured, published = record.test_accuracy, PUBLISHED[D, N]
        differences.append(abs(measured - published))
        predicted = {n: float(find_law(n)(vocab_size=512, num_facts=16, embed_dim=D, state_dim=N)) for n in LAWS}
        for name, p in predicted.items():
            errors[name].append(abs(p - measured))
        cells = " | ".join(f"{predicted[name]:.3f}" for name in LAWS)
        lines.append(
            f"| {D} | {N} | {published:.2f} | {measured:.4f} | {measured - published:+.3f} | {cells} | {record.seconds:.1f} |"
        )
    lines += [
        "",
        f"Largest difference to the published value: {max(differences):.3f}.",
        "",
        "Mean / largest absolute error of each law on these cells: "
        + "; ".join(f"`{name}` {mean(e):.4f} / {max(e):.3f}" for name, e in errors.items())
        + ".",
    ]
    (HERE / "README.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
