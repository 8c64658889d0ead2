"""What the golden tests pin, computed as plain data. `python tests/golden/outputs.py` writes it to golden.json.

Run the script only for a change that is meant to alter these numbers, and say so in the commit: no refactoring may.
"""

import contextlib
import hashlib
import io
import json
from collections.abc import Container
from pathlib import Path
from typing import Any

import torch

from recallscope.architectures.model import build_model
from recallscope.cli.main import main
from recallscope.records import read_facts
from recallscope.runs.store import RunStore
from recallscope.specs import RunSpec, parse_task
from recallscope.tasks.drawing import sample_batch
from recallscope.train.loop import Trained, stream, train_run

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_name("golden.json")
PAPER = ROOT / "results" / "paper"
INSPECTED = PAPER / "runs" / "11d603f0e6a0c786074d702a" / "weights.safetensors"  # linear, D = 48, N = 32

SIZES = ("--vocab-size", "--num-facts", "--embed-dim", "--state-dim")
GRIDS = (  # (V, N_f, all D, all N, other flags): 50 settings
    (512, 16, "16 32 64", "4 8 16", ""),
    (512, 32, "16 64", "8 32", ""),
    (1024, 32, "32 64", "8 16 32", ""),
    (256, 8, "24 64", "4 16", ""),
    (128, 8, "64 128", "2 8", ""),
    (4096, 64, "64", "8 32", ""),
    (1024, 16, "64 128", "8 32", ""),
    (512, 16, "32 64", "8 16", "--length 128"),
    (512, 32, "32 64", "8 16", "--task ar"),
    (64, 4, "8 48", "3 8", "--task ar"),
    (512, 16, "60", "4 8", "--num-layers 2"),
    (512, 16, "60", "8", "--num-heads 4 --head-pattern MHA"),
    (512, 16, "60", "8", "--num-heads 4 --head-pattern MQA"),
    (512, 16, "60", "8", "--num-heads 4 --head-pattern MKA"),
)
RUN = {
    "task": {"kind": "mqar", "vocab_size": 32, "num_facts": 4},
    "model": {"kind": "linear_mamba", "embed_dim": 16, "state_dim": 8},
    "train": {"batch_size": 32, "warmup_steps": 20, "flat_steps": 180, "decay_steps": 100}
    | {"eval_every": 150, "eval_size": 500},
    "seed": 3,
}
TASKS = (
    {"kind": "mqar", "vocab_size": 32, "num_facts": 4},
    {"kind": "mqar", "vocab_size": 64, "num_facts": 4, "length": 32, "power_a": 0.1},
    {"kind": "repeated", "vocab_size": 64, "num_facts": 6, "key_repeats": 2},
    {"kind": "ar", "vocab_size": 64, "num_facts": 8},
)


def digest(value: Any) -> str:
    """16 hex digits of SHA-256 of canonical JSON."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def command_json(*arguments: object) -> Any:
    """What a command prints with --json."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        code = main([*map(str, arguments), "--json"])
    assert code == 0, arguments
    return json.loads(printed.getvalue())


def committed_specs() -> dict[str, dict[str, Any]]:
    """The spec of every record committed under results/, by the name that its record gives the run."""
    stores = [RunStore(marker.parent) for marker in sorted((ROOT / "results").rglob("store.json"))]
    facts = [store.facts(run) for store in stores for run in store.names()]
    facts += [read_facts(path.read_bytes()) for path in (ROOT / "results").rglob("record.json")]
    return {fact["run"]: fact["spec"] for fact in facts}


def run_names() -> list[str]:
    """Names of all committed runs, recomputed from their specs."""
    return sorted(RunSpec.model_validate(spec).content_hash() for spec in committed_specs().values())


def predictions() -> list[dict[str, Any]]:
    """Every law's number for 50 settings, the upper bounds of several heads included."""
    found = []
    for V, N_f, all_D, all_N, others in GRIDS:
        flags = (V, N_f, all_D, all_N)
        arguments = [part for name, value in zip(SIZES, flags, strict=True) for part in (name, *str(value).split())]
        for row in command_json("predict", *arguments, *others.split())["rows"]:
            setting = f"V={V} N_f={N_f} D={row['embed_dim']} N={row['state_dim']} {others}".strip()
            found.append({"setting": setting, "laws": row["laws"], "upper": row.get("laws_upper", {})})
    return found


def store_rows(names: Container[str] | None = None) -> dict[str, Any]:
    """Rows of `store list results/paper`, of these runs or all: their number, column digests, three of them in full."""
    rows = command_json("store", "list", PAPER, "--limit", 0)["runs"]
    rows = [row for row in rows if names is None or row["run"] in names]
    rows.sort(key=lambda row: row["run"])
    columns = sorted({name for row in rows for name in row})
    digests = {name: digest([[row["run"], row.get(name)] for row in rows]) for name in columns}
    return {"rows": len(rows), "columns": digests, "examples": rows[:: len(rows) // 2]}


def batches() -> list[dict[str, Any]]:
    """First sequence, and a digest, of the first batch that a run draws of each task."""
    found = []
    for fields in TASKS:
        run = RunSpec.model_validate({**RUN, "task": fields})
        batch = sample_batch(parse_task(fields), 16, stream(run, "batches"))
        tensors = {name: value.tolist() for name, value in vars(batch).items() if isinstance(value, torch.Tensor)}
        first = {name: rows[0] for name, rows in tensors.items()}
        found.append({"task": fields, "first": first, "all": digest(list(tensors.values()))})
    return found


def initial_weights() -> dict[str, list[float]]:
    """Mean square and first entries of each tensor that training starts from."""
    run = RunSpec.model_validate(RUN)
    model = build_model(run.model, run.task.vocab_size, stream(run, "weights"))
    named = ((name, weight.detach().double().flatten()) for name, weight in model.named_parameters())
    return {name: [float((weight**2).mean()), *weight[:3].tolist()] for name, weight in named}


def training() -> Trained:
    """One small training run, about a second."""
    return train_run(RunSpec.model_validate(RUN), progress=False)


def inspection() -> dict[str, float]:
    """Every score that `inspect` prints about one committed model, by its place."""
    printed = command_json("inspect", INSPECTED, "--num-sequences", 400)
    return dict(numbers({name: part for name, part in printed.items() if name not in ("model", "task", "state_bits")}))


def numbers(value: Any, place: str = "") -> list[tuple[str, float]]:
    """The numbers inside plain data, with their places."""
    if isinstance(value, dict):
        return [found for name, inner in value.items() for found in numbers(inner, f"{place}.{name}".strip("."))]
    if isinstance(value, list):
        return [found for index, inner in enumerate(value) for found in numbers(inner, f"{place}.{index}")]
    return [(place, value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def write() -> None:
    """Compute everything and write golden.json, one line per entry."""
    torch.set_num_threads(1)
    record = training().record
    parts: dict[str, Any] = {"run_names": run_names(), "predictions": predictions(), "store": store_rows()}
    parts |= {"batches": batches(), "initial_weights": initial_weights()}
    parts |= {"training": {"run": record.run, "test_accuracy": record.test_accuracy}, "inspection": inspection()}
    lines = []
    for name, part in parts.items():
        if isinstance(part, list):
            inner = ",\n".join(json.dumps(entry, allow_nan=False) for entry in part)
            lines.append(f'"{name}": [\n{inner}\n]')
        else:
            inner = ",\n".join(
                f"{json.dumps(key)}: {json.dumps(entry, allow_nan=False)}" for key, entry in part.items()
            )
            lines.append(f'"{name}": {{\n{inner}\n}}')
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
