"""What stands beside a measurement: finished runs on the same task, and rivals trained by the same recipe."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import numpy as np
from scipy.special import stdtrit

from recallscope.health import left_chance
from recallscope.records import RecordError, RunRecord
from recallscope.registry import suggestion
from recallscope.runs.store import RunStore
from recallscope.runs.table import Condition, find_runs
from recallscope.specs import ARCHITECTURES, ModelSpec, TaskSpec, find_architecture, parse_model

COMMITTED = Path(__file__).resolve().parents[3] / "results"  # of a checkout; an installed package has none
TRAINED_NOW = "trained now"  # in the place of a store: a rival
_SIZES = {"embed_dim": "D", "state_dim": "N", "num_layers": "layers", "num_heads": "heads", "head_pattern": ""}


@dataclass(frozen=True)
class Neighbour:
    """All seeds of one model on the task: how well they recall, and what state that takes."""

    model: str  # the architecture
    sizes: str
    accuracy: float  # mean of the seeds
    seeds: int
    state_entries: int | None  # effective
    store: str  # or `TRAINED_NOW`
    interval: tuple[float, float] | None = None  # 95%, over seeds; None for one seed of a stored run
    learned: bool = True  # False if a seed is at chance: its accuracy is that of a failed run

    @property
    def label(self) -> str:
        """Architecture and sizes."""
        return f"{self.model} {self.sizes}".strip()


def committed_stores() -> list[Path]:
    """The stores among this repository's results."""
    return sorted(marker.parent for marker in COMMITTED.glob("*/store.json"))


def neighbours(task: TaskSpec, stores: Iterable[Path | str]) -> list[Neighbour]:
    """Every model that the stores have on exactly this task, best first.

    Runs of one model that were trained differently, in steps or learning rate, are one model: the better training
    counts.
    """
    rows = []
    for place, records in trained_best(task, stores):
        accuracies, spec = [record.test_accuracy for record in records], records[0].spec.model
        entries = spec.effective_entries or records[0].effective_entries
        learned = all(left_chance(record.model_dump(mode="json")) for record in records)
        ends = over_seeds(accuracies) if len(records) > 1 else None
        name = Path(place).name
        rows.append(Neighbour(spec.kind, sizes_of(spec), mean(accuracies), len(records), entries, name, ends, learned))
    return sorted(rows, key=lambda row: -row.accuracy)


def trained_best(task: TaskSpec, stores: Iterable[Path | str]) -> list[tuple[str, list[RunRecord]]]:
    """The store, and the records of all seeds, of every model on exactly this task in its best training."""
    found: dict[tuple[str, str], dict[str, list[RunRecord]]] = {}
    for place in stores:
        store = RunStore(place)
        for run in _same_task(store, task):
            try:
                record = store.get(run)
            except RecordError:  # of an architecture that is not here
                continue
            if record is None or record.spec.task != task:
                continue
            key = (str(place), record.spec.model.canonical_json())
            found.setdefault(key, {}).setdefault(record.spec.train.canonical_json(), []).append(record)
    return [
        (place, max(by_training.values(), key=lambda some: mean(record.test_accuracy for record in some)))
        for (place, _), by_training in found.items()
    ]


def sizes_of(spec: ModelSpec) -> str:
    """D, N and the other sizes of a model that has them."""
    given = {name: getattr(spec, name, None) for name in _SIZES}
    return " ".join(f"{_SIZES[name]}={value}".lstrip("=") for name, value in given.items() if value not in (None, 1))


def over_seeds(means: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of the mean of some seeds, by Student's t."""
    half = float(np.std(means, ddof=1)) / math.sqrt(len(means)) * float(stdtrit(len(means) - 1, 0.975))
    return mean(means) - half, mean(means) + half


def rivals_and_stores(named: Iterable[Path | str]) -> tuple[list[str], list[str]]:
    """Names of architectures and of users' modules; and paths of stores. ValueError for what is neither."""
    known, rivals, stores = ARCHITECTURES.names(), list[str](), list[str]()
    for name in map(str, named):
        if name in known or (":" in name and name.rpartition(":")[2].isidentifier()):
            rivals.append(name)
        elif Path(name).exists():
            stores.append(name)
        else:
            raise ValueError(f"compare_with={name}: there is no such store or architecture. {suggestion(name, known)}")
    return rivals, stores


def rival(name: str, width: int, state_entries: int | None) -> ModelSpec:
    """An architecture in its smallest variant at some width D, its N such that D N is nearest to a state size.

    Where that is not known, N = D/4. A user's module is made with the defaults of its constructor.
    """
    if ":" in name:
        return parse_model({"kind": name})
    N = round(state_entries / width) if state_entries else width // 4
    fields = {"embed_dim": width, "state_dim": min(max(N, 1), width)}
    return find_architecture(name).model_validate(fields | {"kind": name})


def _same_task(store: RunStore, task: TaskSpec) -> list[str]:
    """Runs whose fields are those of the task, as far as the store has such columns; quick, and not the last word."""
    fields = {"task": task.kind, "vocab_size": task.vocab_size, "num_facts": getattr(task, "num_facts", None)}
    rows = find_runs(store, [Condition("status", "=", "done")], columns=None)
    return [
        str(row["run"])
        for row in rows
        if all(value is None or row.get(name) == value for name, value in fields.items())
    ]
