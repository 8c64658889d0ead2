"""Train two small full Mambas, look inside, and write the table of these and of the paper's three mechanism models.

Also draws the pictures of docs/BANKS.md.

python results/mechanism/make.py            all of it, about ten minutes on one core
python results/mechanism/make.py --reuse    keep weights that are there, look again, write the table again

The three linear models, their weights and their scores are in results/paper (`recallscope reproduce mechanism`).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from recallscope.circuits.bank import bank_circuit
from recallscope.cli.run_folder import keep
from recallscope.figures.mechanism import banks_figure
from recallscope.figures.style import BLUE, GUESS, ORANGE, PAGE, figure_style, new_figure, write_figure
from recallscope.interp.banks import channel_masks, picture_masks, recall_ablated
from recallscope.interp.inspection import inspect_model
from recallscope.presets import preset_run
from recallscope.runs.store import RunStore
from recallscope.specs import RunSpec
from recallscope.studies.paper.mechanism import inspection_paths
from recallscope.tasks.drawing import sample_batch
from recallscope.train.evaluate import evaluate
from recallscope.train.loop import train_run
from recallscope.train.weights import read_weights

HERE = Path(__file__).parent
PAPER = RunStore(HERE.parent / "paper")
LINEAR = [(64, 32), (64, 24), (48, 32)]
NUM_SEQUENCES = 500
FULL = RunSpec.model_validate(
    {
        "task": {"kind": "mqar", "vocab_size": 64, "num_facts": 8},
        "model": {"kind": "mamba", "embed_dim": 32, "state_dim": 16},
        "train": {
            "batch_size": 32,
            "flat_steps": 2500,
            "decay_steps": 1500,
            "clip_norm": 0.75,
            "stop_accuracy": 0.999,
            "eval_size": 1000,
        },
        "seed": 0,
    }
)
BANK = RunSpec.model_validate(
    {
        "task": {"kind": "mqar", "vocab_size": 256, "num_facts": 8},
        "model": {"kind": "mamba", "embed_dim": 24, "state_dim": 4},
        "train": {"batch_size": 32, "warmup_steps": 100, "flat_steps": 1900, "decay_steps": 6000, "clip_norm": 0.75}
        | {"eval_every": 1000, "eval_size": 1000},
        "seed": 0,
    }
)

ROWS = [
    ("accuracy, test set", lambda s, r: f"{r['test_accuracy']:.5f}", ">= 0.999"),
    (
        "mean diagonal of G_vv over values, of G_kq over keys",
        lambda s, r: f"{s['mean_diagonals']['g_vv']:.2f}, {s['mean_diagonals']['g_kq']:.2f}",
        "same sign",
    ),
    ("G_vv in its block", lambda s, r: f"{s['g_vv_block_mass']:.4f}", ">= .99"),
    ("G_kq in its block", lambda s, r: f"{s['g_kq_block_mass']:.4f}", ">= .99"),
    ("facts decoded from the state", lambda s, r: f"{s['decoded_hit_rate']:.4f}", ">= .99"),
    ("AUC, fact against all other entries", lambda s, r: f"{s['auc']:.5f}", ">= 0.999"),
    ("AUC among (value, key) entries", lambda s, r: f"{s['table']['auc_facts']:.5f}", ""),
    (
        "noise of the table / expected",
        lambda s, r: f"{s['table']['noise']:.4f} / {s['table']['predicted_noise']:.4f}",
        "",
    ),
    ("overwriting a fact changes its answer", lambda s, r: f"{s['overwrite_success']:.4f}", ">= 0.95"),
    (
        "other answers changed / with the sequence rewritten",
        lambda s, r: f"{s['overwrite']['others_changed']:.5f} / {s['overwrite']['others_changed_control']:.5f}",
        "equal",
    ),
    ("an erased fact is gone", lambda s, r: f"{s['overwrite']['erased']:.4f}", "1 - 1/128"),
    ("accuracy from the facts in the state alone", lambda s, r: f"{s['projection']['facts_only']:.4f}", ""),
    ("accuracy from the rest of the state", lambda s, r: f"{s['projection']['without_facts']:.4f}", ""),
    ("accuracy, predicted blocks alone", lambda s, r: f"{s['ablation']['circuit_only']:.4f}", ""),
    (
        "accuracy without the block of G_vv / of G_kq",
        lambda s, r: f"{s['ablation']['without_value_block']:.4f} / {s['ablation']['without_match_block']:.4f}",
        "",
    ),
    ("closeness to the circuit", lambda s, r: f"{s['closeness']:.4f}", "1"),
    ("answers that agree with the nearest circuit", lambda s, r: f"{s['nearest_circuit']['agreement']:.5f}", ""),
    ("attention peaks at the fact", lambda s, r: f"{s['attention']['hit_rate']:.4f}", ""),
    ("values copied / keys shifted", lambda s, r: f"{s['copy']['hit_rate']:.4f} / {s['shift']['hit_rate']:.4f}", ""),
    (
        "key variance: measured, tight frame, random",
        lambda s, r: ", ".join(f"{s['key_variance'][name]:.4f}" for name in ("measured", "welch", "random")),
        "",
    ),
    (
        "value variance: measured, tight and shared, tight, random",
        lambda s, r: ", ".join(
            f"{s['value_variance'][name]:.4f}" for name in ("measured", "sharing", "welch", "random")
        ),
        "",
    ),
    ("norm of keys over values, in E", lambda s, r: f"{s['selectivity']['embedding']['norm_ratio']:.3f}", "1"),
    ("values within the hashed directions", lambda s, r: f"{s['selectivity']['value_share']:.3f}", "0"),
    (
        "accuracy by the law: measured variances, predicted, printed",
        lambda s, r: ", ".join(
            f"{s['laws'][name]:.4f}" for name in ("measured_variances", "trained_sharing", "unified")
        ),
        "",
    ),
]


def inspected(run: RunSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """Scores and record of a model of results/paper."""
    name = run.content_hash()
    facts = PAPER.facts(name)
    assert facts is not None, f"{name} is not in {PAPER.root}: recallscope reproduce mechanism --store results/paper"
    return json.loads(inspection_paths(PAPER, name)[1].read_text(encoding="utf-8")), facts


def look_inside(run: RunSpec, folder: Path, *, reuse: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Train unless told to reuse, score, draw; returns scores and record."""
    if not (reuse and (folder / "weights.safetensors").is_file()):
        folder.mkdir(parents=True, exist_ok=True)
        keep(train_run(run), folder)
    model, task = read_weights(folder / "weights.safetensors")
    generator = torch.Generator().manual_seed(0)
    accuracy = evaluate(model, task, 2000, generator)
    found = inspect_model(model, task, generator, num_sequences=NUM_SEQUENCES)
    scores: dict[str, Any] = {"accuracy": accuracy.accuracy, "standard_error": accuracy.standard_error}
    scores |= found.to_dict()
    scores |= {"model": model.spec.model_dump(mode="json"), "task": task.model_dump(mode="json")}
    (folder / "scores.json").write_text(json.dumps(scores, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return scores, json.loads((folder / "record.json").read_text(encoding="utf-8"))


def table(found: dict[str, tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """The linear models side by side."""
    lines = ["| | " + " | ".join(found) + " | circuit, or target |", "|---" * (len(found) + 2) + "|"]
    for says, cell, target in ROWS:
        cells = " | ".join(cell(*pair) for pair in found.values())
        lines.append(f"| {says} | {cells} | {target} |")
    return "\n".join(lines)


Looked = tuple[dict[str, Any], dict[str, Any]]  # scores and record


def page(linear: dict[str, Looked], full: Looked, bank: Looked) -> str:
    """README.md of this folder."""
    scores, record = full
    found = bank[0]["banks"]
    overwrite, probe, shift = scores["overwrite"], scores["probe"], scores["shift_test"]
    return f"""# Looking inside trained models

Generated by `python results/mechanism/make.py`; do not edit. V = 256, L = 64, N_f = 16, preset `mechanism`, one seed;
scores on {NUM_SEQUENCES} fresh sequences, recall on the test set of the run. Eq. 10 leaves a factor free between G_vv
and G_kq, sign included: both are divided by their mean diagonals before they are compared.

{table(linear)}

Key codes are at the Welch bound of tight frames, below that of random codes; values pay for sharing their dimensions.
In Rem F.3 keys and values are orthogonal in E and in the hash. Here they are not: values respond to keys (attention
peaks elsewhere in 1 to 3% of queries), but with keys, which are short, so no wrong value is raised.

## Full Mamba

A small one (V = 64, N_f = 8, D = 32, N = 16; recall {record["test_accuracy"]:.4f}), with norm, gate, SiLU, Delta and
decay. It has no fixed operators, no decoding from weights alone, and no rotations except permutations. What carries
over:

| | |
|---|---|
| the fact's value contributes most to the right logit | {scores["attribution_hit_rate"]:.4f} of queries |
| a linear decoder names the value of a stored key | {probe["accuracy"]:.4f} ({probe["control"]:.4f} with keys shuffled) |
| keys match one position later / in place | {shift["shifted"]:+.2f} / {shift["unshifted"]:+.2f} standard deviations |
| replacing the model's own write changes the answer | {overwrite["own_write"]:.4f} of trials |
| replacing v' k'ᵀ, with averaged codes, changes the answer | {overwrite["factored_write"]:.4f} of trials |
| other answers changed by that | {overwrite["others_changed"]:.4f} |
| fraction of a write that v' k'ᵀ explains | {overwrite["factored_energy"]:.3f} (1 in the linear model) |
| bank of channels | {scores["banks"]["mechanism"]} |

Banks with a small state, and training that starts from them: [full/BANK_START.md](full/BANK_START.md).

## A full Mamba with two banks

V = 256, N_f = 8, D = 24, N = 4, recall {bank[1]["test_accuracy"]:.4f} (docs/BANKS.md). The first direction of the gate over keys has
{found["read"]["share"]:.3f} of its variance, and {found["read"]["in_one_bank"]:.2f} of the keys are in the smaller bank. Its correlation with that of
the writes is {found["correlation"]:.3f}. Verdict: {found["mechanism"]}.

## Pictures

Hash tables, attention, copy and shift, and operators of the three linear models:
[Fig. 13](../../docs/figures/fig-13.png), [Fig. 14](../../docs/figures/fig-14.svg),
[Fig. 15](../../docs/figures/fig-15.svg), [Fig. 16](../../docs/figures/fig-16.png). Of the full Mambas:
`recallscope inspect results/mechanism/full --out look`, and the same for `results/mechanism/bank`.
"""


def switch(model: torch.nn.Module) -> Figure:
    """What one key writes, what another does, and what a query of the first bank reads."""
    masks = channel_masks(model)
    read = masks.read / masks.read.abs().max()
    write = (masks.write - masks.write.amax(dim=0)).exp()
    side = read[:, 0] > read[:, -1]
    channels = (read[side].mean(dim=0) - read[~side].mean(dim=0)).argsort(descending=True)
    first, second = int(side.nonzero()[0]), int((~side).nonzero()[0])
    keys = BANK.model.state_dim
    with figure_style():
        figure = new_figure(PAGE, 2.9)
        axes = figure.subplots(3, 1, sharex=True)
        for ax, values, colour, name in (
            (axes[0], write[first], BLUE, "key A writes"),
            (axes[1], write[second], ORANGE, "key B writes"),
            (axes[2], read[first], GUESS, "query A reads"),
        ):
            ax.bar(np.arange(len(channels)), values[channels], width=0.9, color=colour)
            ax.set(ylim=(0, 1.05), yticks=[0, 1])
            ax.set_ylabel(name, rotation=0, ha="right", va="center")
        half = (len(channels) - keys) / 2
        for middle, text in (
            (half / 2, "bank 1"),
            (half + keys / 2, "key channels"),
            (len(channels) - half / 2, "bank 2"),
        ):
            axes[0].text(middle - 0.5, 1.15, text, ha="center", va="bottom", fontsize=8)
        for ax in axes:
            for edge in (half, half + keys):
                ax.axvline(edge - 0.5, color="#555555", lw=0.6, ls=":")
        axes[2].set_xlabel("channel")
        figure.supylabel("relative to the largest", fontsize=8)
    return figure


def bank_pictures() -> None:
    """The pictures of docs/BANKS.md: the bank circuit of the same sizes, and the trained model."""
    sizes = {name: getattr(BANK.model, name) for name in ("embed_dim", "state_dim")}
    circuit = bank_circuit(BANK.task.vocab_size, **sizes, generator=torch.Generator().manual_seed(0))
    models = {"written down": circuit, "trained": read_weights(HERE / "bank" / "weights.safetensors")[0]}
    batch = sample_batch(BANK.task, 200, 1)
    queries, sizes_text = (
        batch.query_positions.numel(),
        f"V = 256, N_f = 8, D = {BANK.model.embed_dim}, N = {BANK.model.state_dim}",
    )
    figures = {
        f"banks-{name.replace(' ', '-')}": banks_figure(
            picture_masks(model),
            recall_ablated(model, batch),
            f"one {name.replace('written down', 'hand-constructed')} model; {sizes_text}; (d): {queries} queries, 95% binomial intervals",
            queries,
        )
        for name, model in models.items()
    }
    for name, figure in {"bank-switch": switch(circuit), **figures}.items():
        write_figure(figure, HERE.parents[1] / "docs" / "figures" / f"{name}.png")


def main() -> None:
    """All models, then the page."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reuse", action="store_true", help="keep weights that are there")
    reuse = parser.parse_args().reuse
    sizes = {f"D{D}-N{N}": {"embed_dim": D, "state_dim": N} for D, N in LINEAR}
    linear = {name: inspected(preset_run("mechanism", model=model)) for name, model in sizes.items()}
    full = look_inside(FULL, HERE / "full", reuse=reuse)
    bank = look_inside(BANK, HERE / "bank", reuse=reuse)
    bank_pictures()
    (HERE / "README.md").write_text(page(linear, full, bank), encoding="utf-8")


if __name__ == "__main__":
    main()
