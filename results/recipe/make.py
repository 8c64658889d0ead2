"""The recipe study, from the root of a checkout; README.md has the protocol.

python results/recipe/make.py STORE            trains what the store lacks, a run at a time
python results/recipe/make.py STORE --tables   packs what it has into runs.jsonl, and writes the tables of README.md

Seed 0 chooses the learning rates and comes first; then seeds 1, 2 and 3, one after another, so that a part of the
study is a study of fewer seeds. Stop it at any moment; the same command resumes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from recallscope.health import left_chance
from recallscope.records import RunRecord
from recallscope.runs.grid import Cell
from recallscope.runs.packing import pack_store
from recallscope.runs.store import RunStore
from recallscope.runs.sweep import run_sweep
from recallscope.specs import ModelSpec, RunSpec, TrainSpec, find_architecture, parse_model
from recallscope.tasks.associative_recall import MQARSpec

TASKS = {"a": (MQARSpec(vocab_size=64, num_facts=4), 2000), "b": (MQARSpec(vocab_size=512, num_facts=16), 4000)}
ARMS = ("target", "curriculum", "mixture")
RATES = (0.01, 0.003, 0.001, 0.0003)
SEEDS = (1, 2, 3)
REACHED = 0.995
SMALL = {"a": {"embed_dim": 16, "state_dim": 4}, "b": {"embed_dim": 32, "state_dim": 8}}  # minimal memories
PUBLISHED = {"embed_dim": 32, "state_dim": 8, "num_layers": 2}


def _published(kind: str, **fields: object) -> ModelSpec:
    layer = getattr(find_architecture(kind), "PUBLISHED", {})
    return parse_model({**layer, **PUBLISHED, **fields, "kind": kind})


def models(task: str) -> dict[str, ModelSpec]:
    """Every model of the study by its name, quick ones first."""
    others = "examples/others"
    return {
        "linear Mamba, minimal": parse_model({"kind": "linear_mamba", **SMALL[task]}),
        "DeltaNet, minimal": parse_model({"kind": "delta_net", **SMALL[task]}),
        "attention without positions, two layers": _published("attention", rotary=False),
        "GLA, two layers as published": _published("gla"),
        "RWKV-7, two layers as published": _published("rwkv7"),
        "Mamba-2, two layers as published": _published("mamba2", num_heads=1, conv_width=4),
        "LSTM (torch)": parse_model({"kind": f"{others}/torch_recurrent.py:LSTM"}),
        "GRU (torch)": parse_model({"kind": f"{others}/torch_recurrent.py:GRU"}),
        "Llama (transformers)": parse_model({"kind": f"{others}/llama.py:Model"}),
        "TransformerEncoder (torch)": parse_model({"kind": f"{others}/torch_transformer.py:Model"}),
        "GPT-2 (transformers)": parse_model({"kind": f"{others}/gpt2.py:Model"}),
        "Mamba (mambapy)": parse_model({"kind": f"{others}/mambapy_mamba.py:Model"}),
    }


def run_of(task: str, model: ModelSpec, arm: str, rate: float, seed: int) -> RunSpec:
    """One run of the study."""
    spec, steps = TASKS[task]
    train = TrainSpec(
        batch_size=32, learning_rate=rate, warmup_steps=steps // 20, flat_steps=steps // 5,
        decay_steps=steps - steps // 20 - steps // 5, eval_every=100, eval_size=1000, stop_accuracy=REACHED,
        training_facts=arm,
    )  # fmt: skip
    return RunSpec(task=spec, model=model, train=train, seed=seed)


def found(store: RunStore, task: str, model: ModelSpec, arm: str, rate: float, seed: int) -> RunRecord | None:
    """The record of a run, if it is done."""
    return store.get(run_of(task, model, arm, rate, seed).content_hash())


def chosen_rate(store: RunStore, task: str, model: ModelSpec, arm: str) -> float | None:
    """By seed 0: the rate of the highest accuracy, or of the fewest steps to the goal; None until all were tried."""
    records = {rate: found(store, task, model, arm, rate, 0) for rate in RATES}
    known = {rate: record for rate, record in records.items() if record is not None}
    if len(known) < len(RATES):
        return None
    return max(known, key=lambda rate: (min(known[rate].val_accuracy, REACHED), -known[rate].steps))


def runs(store: RunStore) -> Iterator[RunSpec]:
    """All runs in order; those of seeds 1 to 3 follow from what seed 0 has left in the store."""
    for task in TASKS:
        for rate in (0.001, 0.003, 0.01, 0.0003):
            for model in models(task).values():
                for arm in ARMS:
                    yield run_of(task, model, arm, rate, 0)
        for seed in SEEDS:
            for model in models(task).values():
                for arm in ARMS:
                    rate = chosen_rate(store, task, model, arm)
                    if rate is not None:
                        yield run_of(task, model, arm, rate, seed)


def train(store: RunStore) -> None:
    """Everything that is missing, in this process."""
    for run in runs(store):
        if not store.finished(run.content_hash()):
            run_sweep([Cell.of(run)], store, workers=0, retry_failed=True)
            record = store.get(run.content_hash())
            if record is not None:
                where = f"{run.task.num_facts} {run.model.kind} {run.train.training_facts} {run.train.learning_rate:g}"
                shown = f"{record.test_accuracy:.4f} binding {record.binding:.3f} steps {record.steps}"
                print(f"{where} seed {run.seed}: {shown} {record.levels_ended} {record.seconds:.0f} s", flush=True)


def search_table(store: RunStore, task: str) -> Iterator[str]:
    """Seed 0: accuracy at every rate, of every arm; in italics at chance."""
    columns = [f"{arm} {rate:g}" for arm in ARMS for rate in RATES]
    yield f"| model | {' | '.join(columns)} |"
    yield "|---|" + "---:|" * len(columns)
    for name, model in models(task).items():
        records = [found(store, task, model, arm, rate, 0) for arm in ARMS for rate in RATES]
        if any(records):
            yield f"| {name} | {' | '.join(map(cell, records))} |"


def cell(record: RunRecord | None) -> str:
    """An accuracy, and the step at which the goal was reached."""
    if record is None:
        return ""
    text = f"{record.test_accuracy:.3f}"
    text += f" ({record.steps})" if record.val_accuracy >= REACHED else ""
    return text if left_chance(record.model_dump(mode="json")) else f"*{text}*"


def result_table(store: RunStore, task: str) -> Iterator[str]:
    """Seeds 1 to 3 at the chosen rate: mean accuracy, how many left chance, and the rate."""
    yield f"| model | {' | '.join(ARMS)} |"
    yield "|---|" + "---|" * len(ARMS)
    for name, model in models(task).items():
        cells = []
        for arm in ARMS:
            rate = chosen_rate(store, task, model, arm)
            seen = [found(store, task, model, arm, rate, seed) for seed in SEEDS] if rate is not None else []
            records = [record for record in seen if record is not None]
            begun = sum(left_chance(record.model_dump(mode="json")) for record in records)
            accuracy = f"{mean(record.test_accuracy for record in records):.3f}" if records else ""
            cells.append(f"{accuracy} ({begun} of {len(records)} learned; {rate:g})" if records else "")
        if any(cells):
            yield f"| {name} | {' | '.join(cells)} |"


def page(store: RunStore) -> str:
    """README.md with its tables made anew."""
    text = (HERE / "README.md").read_text(encoding="utf-8")
    everything = [run for run in runs(store) if store.finished(run.content_hash())]
    seconds = sum(record.seconds for run in everything if (record := store.get(run.content_hash())))
    lines = [f"{len(everything)} runs so far, {seconds / 3600:.1f} hours of wall time on a busy machine.", ""]
    for task, (spec, steps) in TASKS.items():
        what = f"({task}) V = {spec.vocab_size}, N_f = {spec.num_facts}, {steps:,} steps"
        lines += [f"### {what}: seeds 1 to 3", "", *result_table(store, task), ""]
        lines += [f"### {what}: the choice of the rate, seed 0", "", *search_table(store, task), ""]
    new, count = re.subn(r"(<!-- tables -->\n).*", lambda at: at[1] + "\n" + "\n".join(lines), text, flags=re.DOTALL)
    assert count == 1, "README.md has no place for the tables"
    return new.rstrip() + "\n"


HERE = Path(__file__).parent

if __name__ == "__main__":
    home = RunStore(Path(sys.argv[1]), create=True)
    if "--tables" in sys.argv:
        pack_store(home, HERE / "runs.jsonl")
        (HERE / "README.md").write_text(page(home), encoding="utf-8")
    else:
        train(home)
