"""The recipe study, from the root of a checkout; README.md has the protocol.

python results/recipe/make.py STORE            trains what the store lacks, a run at a time
python results/recipe/make.py STORE --pack     packs what it has into runs.jsonl
python results/recipe/make.py --tables         writes the tables of README.md and docs/YOUR_MODEL.md from runs.jsonl

One (task, model) pair after another, in the order of `PAIRS`: for each arm the learning rates on seed 0, then seeds 1,
2 and 3. Stop it at any moment; the same command resumes.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

from recallscope.health import left_chance
from recallscope.records import RunRecord
from recallscope.runs.driver import run_sweep
from recallscope.runs.grid import Cell
from recallscope.runs.store import RunStore
from recallscope.runs.upkeep import pack_store
from recallscope.specs import RunSpec, TrainSpec, parse_model
from recallscope.tasks.associative_recall import MQARSpec

TASKS = {"a": MQARSpec(vocab_size=64, num_facts=4), "b": MQARSpec(vocab_size=512, num_facts=16)}
STEPS = 2000
ARMS = ("target", "mixture", "curriculum")  # the simplest first
RATES = (0.01, 0.003, 0.001, 0.0003)
SEEDS = (1, 2, 3)
REACHED = 0.995
LEARNED = 2  # of the three seeds
BEHIND, EQUAL, MOVED = 0.02, 0.01, 0.02
ENOUGH_PAIRS = 10
SMALL = {"a": {"embed_dim": 16, "state_dim": 4}, "b": {"embed_dim": 32, "state_dim": 8}}  # minimal memories
MEMORIES = {"linear Mamba, minimal": "linear_mamba", "DeltaNet, minimal": "delta_net"}
DEEP = {"embed_dim": 32, "state_dim": 8, "num_layers": 2, "norm": "rms"}
LAYER = DEEP | {"output_norm": "rms"}
PUBLISHED: dict[str, dict[str, Any]] = {  # as of the amendment, whatever the package calls published later
    "attention without positions": DEEP | {"kind": "attention", "conv_width": 1},
    "GLA": LAYER | {"kind": "gla", "conv_width": 1, "output_gate": "silu", "forget_start": 0.958},
    "RWKV-7": LAYER | {"kind": "rwkv7", "conv": "shift", "output_gate": "sigmoid", "write_start": 0.5, "bonus": True},
    "Mamba-2": {"kind": "mamba2", "embed_dim": 32, "state_dim": 8, "num_layers": 2, "num_heads": 1, "conv_width": 4},
}
OTHERS = {
    "LSTM (torch)": "torch_recurrent.py:LSTM",
    "GRU (torch)": "torch_recurrent.py:GRU",
    "Llama (transformers)": "llama.py:Model",
    "TransformerEncoder (torch)": "torch_transformer.py:Model",
    "GPT-2 (transformers)": "gpt2.py:Model",
    "Mamba (mambapy)": "mambapy_mamba.py:Model",
}
PAIRS = (
    *(("a", name) for name in (*MEMORIES, "Llama (transformers)", "TransformerEncoder (torch)", "RWKV-7")),
    *(("b", name) for name in MEMORIES),
    *(("a", name) for name in ("attention without positions", "LSTM (torch)", "Mamba-2", "GPT-2 (transformers)")),
    ("b", "RWKV-7"),
    *(("a", name) for name in ("Mamba (mambapy)", "GRU (torch)", "GLA")),
    *(("b", name) for name in ("Llama (transformers)", "attention without positions", "Mamba-2", "GLA")),
    *(("b", name) for name in ("TransformerEncoder (torch)", "LSTM (torch)")),
)


def run_of(task: str, name: str, arm: str, rate: float, seed: int) -> RunSpec:
    """One run of the study; those of seed 0, which choose the rate, have half of the steps."""
    if name in MEMORIES:
        model = SMALL[task] | {"kind": MEMORIES[name]}
    else:
        model = PUBLISHED.get(name) or {"kind": f"examples/others/{OTHERS[name]}"}
    steps = STEPS if seed else STEPS // 2
    train = TrainSpec(
        batch_size=32, learning_rate=rate, warmup_steps=steps // 20, flat_steps=steps // 5,
        decay_steps=steps - steps // 20 - steps // 5, eval_every=100, eval_size=1000, stop_accuracy=REACHED,
        training_facts=arm,
    )  # fmt: skip
    return RunSpec(task=TASKS[task], model=parse_model(model), train=train, seed=seed)


def found(store: RunStore, *labels: Any) -> RunRecord | None:
    """The record of a run, if it is done."""
    return store.get(run_of(*labels).content_hash())


def chosen_rate(store: RunStore, task: str, name: str, arm: str) -> float | None:
    """By seed 0: the rate of the highest accuracy, or of the fewest steps to the goal; None until all were tried."""
    records = {rate: found(store, task, name, arm, rate, 0) for rate in RATES}
    known = {rate: record for rate, record in records.items() if record is not None}
    if len(known) < len(RATES):
        return None
    return max(known, key=lambda rate: (min(known[rate].val_accuracy, REACHED), -known[rate].steps))


def runs(store: RunStore) -> Iterator[tuple[str, str, str, float, int]]:
    """All runs in order; those of seeds 1 to 3 follow from what seed 0 has left in the store."""
    for task, name in PAIRS:
        for arm in ARMS:
            yield from ((task, name, arm, rate, 0) for rate in RATES)
            rate = chosen_rate(store, task, name, arm)
            if rate is not None:
                yield from ((task, name, arm, rate, seed) for seed in SEEDS)


def train(store: RunStore) -> None:
    """Everything that is missing, in this process."""
    for labels in runs(store):
        run = run_of(*labels)
        if not store.finished(run.content_hash()):
            run_sweep([Cell.of(run)], store, workers=0, retry_failed=True)
            record = store.get(run.content_hash())
            if record is not None:
                shown = f"{record.test_accuracy:.4f} binding {record.binding:.3f} steps {record.steps}"
                print(*labels, shown, record.levels_ended, f"{time.process_time():.0f} CPU s so far", flush=True)


def results(store: RunStore) -> dict[tuple[str, str], dict[str, list[RunRecord]]]:
    """The records of seeds 1 to 3 of every arm, of the pairs that are complete."""
    every: dict[tuple[str, str], dict[str, list[RunRecord]]] = {}
    for task, name in PAIRS:
        rates = {arm: chosen_rate(store, task, name, arm) for arm in ARMS}
        seen = {
            arm: [found(store, task, name, arm, rate, seed) for seed in SEEDS] for arm, rate in rates.items() if rate
        }
        done = {arm: [record for record in records if record] for arm, records in seen.items()}
        if sum(map(len, done.values())) == len(ARMS) * len(SEEDS):
            every[task, name] = done
    return every


def accuracy(records: list[RunRecord]) -> float:
    """Mean over seeds."""
    return mean(record.test_accuracy for record in records)


def begun(records: list[RunRecord]) -> int:
    """How many seeds left chance."""
    return sum(left_chance(record.model_dump(mode="json")) for record in records)


def decision(store: RunStore) -> list[str]:
    """The rule, applied: a sentence for each step, the winner last."""
    every = results(store)
    counted = {pair: arms for pair, arms in every.items() if max(map(begun, arms.values())) >= LEARNED}
    behind = dict.fromkeys(ARMS, 0)
    for arms in counted.values():
        best = max(map(accuracy, arms.values()))
        for arm, records in arms.items():
            behind[arm] += accuracy(records) < best - BEHIND
    overall = {arm: mean(accuracy(arms[arm]) for arms in counted.values()) if counted else 0.0 for arm in ARMS}
    moved = {
        arm for (_, name), arms in every.items() if name in MEMORIES for arm in ARMS
        if abs(accuracy(arms[arm]) - accuracy(arms["target"])) > MOVED
    }  # fmt: skip
    counts = ", ".join(f"{arm} in {behind[arm]} (mean accuracy {overall[arm]:.3f})" for arm in ARMS)
    lines = [f"{len(every)} of {len(PAIRS)} pairs are complete; in {len(counted)} some arm learned. Behind: {counts}."]
    lines += [f"Out, as it moves a minimal memory: {', '.join(sorted(moved))}."] if moved else []
    left = [arm for arm in ARMS if arm not in moved]
    fewest = [arm for arm in left if behind[arm] == min(behind[one] for one in left)]
    winner = next(arm for arm in fewest if overall[arm] > max(overall[one] for one in fewest) - EQUAL)
    if len(counted) < ENOUGH_PAIRS:
        return [*lines, f"**Undecided**: fewer than {ENOUGH_PAIRS} pairs."]
    return [*lines, f"**The winner is `{winner}`.**"]


def cell(record: RunRecord | None) -> str:
    """An accuracy, and the step at which the goal was reached."""
    if record is None:
        return ""
    text = f"{record.test_accuracy:.3f}"
    text += f" ({record.steps})" if record.val_accuracy >= REACHED else ""
    return text if begun([record]) else f"*{text}*"


def names(task: str) -> list[str]:
    """The models of a task, in order."""
    return [name for some, name in PAIRS if some == task]


def results_table(store: RunStore, task: str) -> Iterator[str]:
    """Each arm at its rate: the mean of seeds 1 to 3, and the three."""
    yield from (f"| model | {' | '.join(ARMS)} |", "|---|" + "---|" * len(ARMS))
    for name in names(task):
        shown = []
        for arm in ARMS:
            rate = chosen_rate(store, task, name, arm)
            seen = [found(store, task, name, arm, rate, seed) for seed in SEEDS] if rate else []
            done = [record for record in seen if record]
            shown.append(f"{accuracy(done):.3f} ({', '.join(map(cell, done))}) at {rate:g}" if done else "")
        if any(shown):
            yield f"| {name} | {' | '.join(shown)} |"


def rates_table(store: RunStore, task: str) -> Iterator[str]:
    """The accuracies behind the choice of the rates."""
    columns = [(arm, rate) for arm in ARMS for rate in RATES]
    yield f"| model | {' | '.join(f'{arm} {rate:g}' for arm, rate in columns)} |"
    yield "|---|" + "---:|" * len(columns)
    for name in names(task):
        records = [found(store, task, name, arm, rate, 0) for arm, rate in columns]
        if any(records):
            yield f"| {name} | {' | '.join(map(cell, records))} |"


def tables(store: RunStore, *, rates: bool) -> str:
    """What was found, with the accuracies behind the choice of the rates or without."""
    every = [record for labels in runs(store) if (record := found(store, *labels))]
    hours = sum(record.seconds for record in every) / 3600
    lines = ["", *decision(store), "", f"{len(every)} runs, {hours:.1f} hours of wall time beside other work.", ""]
    for task, spec in TASKS.items():
        what = f"({task}) V = {spec.vocab_size}, N_f = {spec.num_facts}"
        lines += [f"{what}: mean of seeds 1 to 3 (each), at the rate chosen", "", *results_table(store, task), ""]
        if rates:
            lines += [
                f"{what}: the choice of the rate, seed 0, {STEPS // 2:,} steps",
                "",
                *rates_table(store, task),
                "",
            ]
    return "\n".join(lines)


def filled(page: Path, text: str) -> str:
    """A page with its tables made anew."""
    old = page.read_text(encoding="utf-8")
    new, count = re.subn(
        r"(<!-- recipe -->\n).*(<!-- /recipe -->)", lambda at: at[1] + text + at[2], old, flags=re.DOTALL
    )
    assert count == 1, f"{page} has no place for the tables"
    return new


def pages() -> dict[Path, str]:
    """README.md here, and the page of the documentation, as the records have them."""
    store = RunStore(HERE / "runs.jsonl")
    places = {HERE / "README.md": True, HERE.parents[1] / "docs" / "YOUR_MODEL.md": False}
    return {page: filled(page, tables(store, rates=rates)) for page, rates in places.items()}


HERE = Path(__file__).parent

if __name__ == "__main__":
    if "--tables" in sys.argv:
        for page, text in pages().items():
            page.write_text(text, encoding="utf-8")
    elif "--pack" in sys.argv:
        pack_store(RunStore(Path(sys.argv[1])), HERE / "runs.jsonl")
    else:
        train(RunStore(Path(sys.argv[1]), create=True))
