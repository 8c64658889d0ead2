"""Train full Mamba from two hand-constructed banks, and as usual: does training keep them, and reach their law?

python results/mechanism/full/bank_start.py            all trainings, about ten minutes on one core
python results/mechanism/full/bank_start.py --reuse    write the page again from bank_start.json

The designed circuit of `recallscope design --circuit bank` has no norm, no residual and weights from 2^-32 to 2^40: a
step of AdamW destroys it. Here the same circuit is written into the full block, at weights of the size that training
has. Keys point mostly along the dimension that tells them from values: after the norm their code is soft, so that
(key, key) pairs write little; the gate and Delta are shut at SHUT, not at 100.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from recallscope.architectures.mamba_model import Mamba
from recallscope.architectures.model import RecallModel, build_model
from recallscope.circuits.bank import bank_circuit
from recallscope.circuits.codes import tight_frame
from recallscope.interp.banks import measure_banks
from recallscope.specs import RunSpec
from recallscope.tasks.drawing import sample_batch
from recallscope.theory.law import find_law
from recallscope.train.evaluate import evaluate
from recallscope.train.loop import stream
from recallscope.train.optimizer import FlatWeights, learning_rate

HERE = Path(__file__).parent
RECORDS, PAGE = HERE / "bank_start.json", HERE / "BANK_START.md"
CELL = {"vocab_size": 256, "num_facts": 8, "embed_dim": 24, "state_dim": 4}
STEPS = {"warmup_steps": 100, "flat_steps": 1100, "decay_steps": 2800}
SEEDS = (0, 1)
STARTS = (("usual", 0.01), ("bank", 0.01), ("bank", 0.001), ("usual", 0.003))
SEQUENCES = 1600
CLOSE = 0.02  # recall below the bank law that still counts as reaching it
DRAWN = 0.001  # of a usual draw, added to the circuit: weights that are 0 on both sides of a product never move
APART = 8.0  # how much longer a key is along what tells it from values than along its code
SMALL, BEFORE, SHUT, SHARP = 0.3, 0.5, 8.0, 3.0


def run_of(rate: float, seed: int) -> RunSpec:
    """The recipe of the experiment `components`, with fewer steps."""
    task = {"kind": "mqar", "vocab_size": CELL["vocab_size"], "num_facts": CELL["num_facts"]}
    model = {"kind": "mamba", "embed_dim": CELL["embed_dim"], "state_dim": CELL["state_dim"]}
    train = STEPS | {"learning_rate": rate, "batch_size": 32, "clip_norm": 0.75, "eval_size": SEQUENCES}
    return RunSpec.model_validate({"task": task, "model": model, "train": train, "seed": seed})


@torch.no_grad()
def write_banks(model: Mamba, generator: torch.Generator) -> None:
    """Add two banks to small weights of a full block; the letters are those of `bank_circuit`."""
    D, V = model.E.shape
    N, half = model.spec.state_dim, V // 2
    P, mixer = (2 * D - N) // 2, model.layers[0].mixer
    bits = torch.where(torch.randperm(half, generator=generator) % 2 == 0, 1.0, -1.0)
    long = math.sqrt(2 + APART**2)
    model.E[:N, :half] += tight_frame(N, half, generator) / long * math.sqrt(2)
    model.E[P - 1, :half] += bits / long * math.sqrt(2)
    model.E[-1, :half] -= APART / long * math.sqrt(2)
    model.E[:P, half:] += tight_frame(P, half, generator)
    model.E[-1, half:] += 1
    loud = math.sqrt(D / 2)  # a value's code after the norm
    soft = math.sqrt(D) / long  # a key's code, and its bit
    first, second, key = slice(0, P), slice(P, 2 * P), slice(2 * P, 2 * P + N)
    x_rows, z_rows = mixer.in_proj.weight.split(2 * D)
    x_rows[first, :P] += SMALL / loud * torch.eye(P)
    x_rows[second, :P] += SMALL / loud * torch.eye(P)
    shut = SHUT / (loud + APART * soft)
    x_rows[key, :N] += SMALL / soft * torch.eye(N)
    x_rows[key, -1] -= shut
    mixer.conv1d.bias[key] -= shut * APART * soft
    before, now = mixer.conv1d.weight[:, 0].T
    before[key] += 1
    now[first] += 1
    now[second] += 1
    before[P - 1] += BEFORE
    low, B, C = mixer.x_proj.weight.split(mixer.x_proj_rows)
    B[:, key] += 2 / SMALL * torch.eye(N)
    C[:, first][:, :N] += 2 / SMALL * loud / soft * torch.eye(N)
    low[0, P - 1] += 2 / SMALL * loud / soft / BEFORE
    low[0, 2 * P - 1] -= 2 / SMALL * loud / soft / BEFORE
    for bank, sign in ((first, 1), (second, -1)):
        mixer.dt_proj.weight[bank, 0] += sign * SHUT
        z_rows[bank, P - 1] += sign * SHUT / soft
        mixer.out_proj.weight[:P, bank] += torch.eye(P)
    mixer.dt_proj.bias.zero_()
    mixer.A_log.fill_(-SHUT)
    mixer.D.zero_()
    for norm, gain in ((model.layers[0].norm, 1.0), (model.norm_f, SHARP)):
        norm.weight.fill_(gain)


def started(run: RunSpec, start: str) -> RecallModel:
    """The model before its first step."""
    model = build_model(run.model, run.task.vocab_size, stream(run, "weights"), embedding_std=1.0)
    if start == "bank":
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(DRAWN)
        write_banks(model, torch.Generator().manual_seed(run.seed))
    return model


def measured(model: RecallModel, run: RunSpec) -> dict[str, Any]:
    """Recall and bank scores."""
    score = evaluate(model, run.task, SEQUENCES, stream(run, "test"))
    batch = sample_batch(run.task, 256, torch.Generator().manual_seed(7))
    found = measure_banks(model, batch, torch.Generator().manual_seed(7))
    return {"recall": score.accuracy, "mechanism": found.mechanism} | asdict(found)


def trained(start: str, rate: float, seed: int) -> dict[str, Any]:
    """One training: what stood before it, on the way, and after it."""
    run = run_of(rate, seed)
    model, train = started(run, start), run.train
    record: dict[str, Any] = {"start": start, "spec": run.model_dump(mode="json"), "before": measured(model, run)}
    weights, batches, seen = FlatWeights(model, train), stream(run, "batches"), []
    for step in range(train.total_steps):
        model.add_gradients(sample_batch(run.task, train.batch_size, batches), train.label_smoothing)
        weights.step(learning_rate(train, step), train.clip_norm)
        if (step + 1) in (50, 100, 200, 500) or (step + 1) % 1000 == 0:
            seen.append([step + 1, evaluate(model, run.task, 400, stream(run, "validation")).accuracy])
    return record | {"recall_by_step": seen, "after": measured(model, run)}


def summary(records: list[dict[str, Any]], start: str, law: float) -> str:
    """A sentence about the trainings that started so."""
    mine = [one for one in records if one["start"] == start]
    before, after = ([one[when]["recall"] for one in mine] for when in ("before", "after"))
    bits = sum(one["after"]["mechanism"].startswith(("two banks", "one bank bit")) for one in mine)
    there = sum(recall >= law - CLOSE for recall in after)
    return (
        f"- Start {start}: recall {min(before):.3f} to {max(before):.3f} before, {min(after):.3f} to {max(after):.3f} after "
        f"training; two banks in {bits} of {len(mine)}; within {CLOSE} of the bank law, or above it, {there} of "
        f"{len(mine)}."
    )


def page(records: list[dict[str, Any]]) -> str:
    """BANK_START.md of this folder."""
    words = {name: float(find_law(name)(**CELL)) for name in ("full-nd", "full-bank")}
    circuit = bank_circuit(256, 24, 4, torch.Generator().manual_seed(0))
    own = evaluate(circuit, run_of(0.01, 0).task, SEQUENCES, torch.Generator().manual_seed(1)).accuracy
    head = ("start, rate, seed", "when", "recall", "gate: share of first direction", "its fourth moment",
            "writes: share", "correlation", "gate replaced by its mean", "dimensions / N (2 D - N)", "mechanism")  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for one in records:
        name = f"{one['start']}, {one['spec']['train']['learning_rate']:g}, {one['spec']['seed']}"
        for when in ("before", "after"):
            now = one[when]
            cells = (now["recall"], now["read"]["share"], now["read"]["fourth_moment"], now["write"]["share"],
                     now["correlation"], now["ablations"]["mean_gate"],
                     now["noise"]["dimensions"] / now["noise"]["bank_dimensions"])  # fmt: skip
            numbers = " | ".join(f"{cell:.3f}" for cell in cells)
            lines.append(
                f"| {name} | {when} | {numbers} | {now['mechanism'].partition(':')[0].replace('one bank bit', 'two banks')} |"
            )
    on_the_way = "\n".join(
        f"- {one['start']}, rate {one['spec']['train']['learning_rate']:g}, seed {one['spec']['seed']}: "
        + ", ".join(f"{p:.3f} after {step}" for step, p in one["recall_by_step"])
        for one in records
    )
    table = "\n".join(lines)
    says = "\n".join(summary(records, start, words["full-bank"]) for start in ("usual", "bank"))
    return f"""# Full Mamba trained from two banks

Generated by `python results/mechanism/full/bank_start.py`; do not edit. V = 256, N_f = 8, D = 24, N = 4, the recipe of
the experiment `components` with {sum(STEPS.values())} steps; recall after the last step on {SEQUENCES} sequences. By
the laws {words["full-nd"]:.3f} without a gate (`full-nd`) and {words["full-bank"]:.3f} with two banks (`full-bank`); the
designed circuit itself recalls {own:.3f}.

{says}

{table}

Recall on the way (400 sequences):

{on_the_way}
"""


def main() -> None:
    """All trainings, then the page."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reuse", action="store_true", help="keep the trainings that are there")
    records = json.loads(RECORDS.read_text(encoding="utf-8")) if parser.parse_args().reuse else []
    for seed in () if records else SEEDS:
        for start, rate in STARTS:
            records.append(trained(start, rate, seed))
            RECORDS.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
            print(start, rate, seed, records[-1]["recall_by_step"], flush=True)
    PAGE.write_text(page(records), encoding="utf-8")


if __name__ == "__main__":
    main()
