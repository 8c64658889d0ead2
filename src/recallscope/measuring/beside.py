"""Finished runs on the same task, to stand a measurement beside: of any store, or of this repository's records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recallscope.records import RecordError
from recallscope.runs.store import RunStore
from recallscope.runs.table import Condition, find_runs
from recallscope.specs import TaskSpec

COMMITTED = Path(__file__).resolve().parents[3] / "results"  # of a checkout; an installed package has none
_SIZES = {"embed_dim": "D", "state_dim": "N", "num_layers": "layers", "num_heads": "heads", "head_pattern": ""}


@dataclass(frozen=True)
class Neighbour:
    """All seeds of one model on the task: how well they recall, and what state that takes."""

    model: str  # the architecture
    sizes: str
    accuracy: float  # mean of the seeds
    seeds: int
    state_entries: int | None  # effective
    store: str

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
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    specs: dict[tuple[str, str], Any] = {}
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
            specs[key] = record.spec.model
            found.setdefault(key, {}).setdefault(record.spec.train.canonical_json(), []).append(record.test_accuracy)
    rows = []
    for key, by_training in found.items():
        accuracies = max(by_training.values(), key=lambda values: sum(values) / len(values))
        spec = specs[key]
        given = {name: getattr(spec, name, None) for name in _SIZES}
        sizes = " ".join(
            f"{_SIZES[name]}={value}".lstrip("=") for name, value in given.items() if value not in (None, 1)
        )
        mean = sum(accuracies) / len(accuracies)
        rows.append(Neighbour(spec.kind, sizes, mean, len(accuracies), spec.effective_entries, Path(key[0]).name))
    return sorted(rows, key=lambda row: -row.accuracy)


def _same_task(store: RunStore, task: TaskSpec) -> list[str]:
    """Runs whose fields are those of the task, as far as the store has such columns; quick, and not the last word."""
    fields = {"task": task.kind, "vocab_size": task.vocab_size, "num_facts": getattr(task, "num_facts", None)}
    rows = find_runs(store, [Condition("status", "=", "done")], columns=None)
    return [
        str(row["run"])
        for row in rows
        if all(value is None or row.get(name) == value for name, value in fields.items())
    ]
