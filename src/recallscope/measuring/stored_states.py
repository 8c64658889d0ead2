"""Recall with the state stored in few bits: beside the exact state and the law, and as the accuracy of a search."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallscope.atomic import write_atomically
from recallscope.records import RunRecord
from recallscope.runs.store import WEIGHTS, RunStore
from recallscope.specs import TaskSpec, identity_hash
from recallscope.state_precision import StatePrecision

if TYPE_CHECKING:
    from recallscope.architectures.model import RecallModel
    from recallscope.interp.stored_states import HeadBits

FOLDER = "stored-states"  # of a store: accuracies of its runs with their states rounded
HEAD_SEQUENCES = 64  # behind A and rho of every head


@dataclass(frozen=True)
class StoredRecall:
    """Recall of one model on the same sequences: with its exact state, with the stored one, and as the law has it."""

    precision: dict[str, Any]
    precision_id: str
    """the identity of the precision: 24 hex digits"""
    label: str
    exact: float
    stored: float
    standard_error: float
    """of `stored`"""
    predicted: float
    """by the law, from the unrounded model"""
    heads: list[HeadBits]

    @property
    def sentences(self) -> list[str]:
        """What rounding costs, what the law said, and what every head asks for."""
        lines = [
            f"state       {self.label}: recall {self.stored:.4f} ± {self.standard_error:.4f}, with the exact state "
            f"{self.exact:.4f}; predicted {self.predicted:.4f}"
        ]
        return [*lines, *(f"            {one.sentence()}" for one in self.heads)]


def predicted_recall(
    model: RecallModel, task: TaskSpec, precision: StatePrecision, num_sequences: int, seed: int = 0
) -> float:
    """Recall that the law expects, on the sequences that `evaluate` draws from this seed; the model is not rounded."""
    from recallscope.interp.stored_states import PredictedState
    from recallscope.train.evaluate import evaluate

    return evaluate(PredictedState(model, precision, seed=seed), task, num_sequences, seed).accuracy


def measure_stored(
    model: RecallModel, task: TaskSpec, precisions: Sequence[StatePrecision], num_sequences: int, seed: int = 0
) -> list[StoredRecall]:
    """Exact, stored and predicted recall on the sequences of one seed, and the numbers of every head."""
    import torch

    from recallscope.architectures.stored_state import StoredState
    from recallscope.interp.stored_states import measure_heads
    from recallscope.tasks.drawing import sample_batch
    from recallscope.train.evaluate import evaluate

    batch = sample_batch(task, min(num_sequences, HEAD_SEQUENCES), torch.Generator().manual_seed(seed))
    exact, found = evaluate(model, task, num_sequences, seed).accuracy, []
    for precision in precisions:
        score = evaluate(StoredState(model, precision, seed=seed), task, num_sequences, seed)
        scale = precision.scale if precision.scale not in ("none", "fixed") else "row"
        found.append(
            StoredRecall(
                precision=precision.model_dump(mode="json"),
                precision_id=precision.content_hash(),
                label=precision.label,
                exact=exact,
                stored=score.accuracy,
                standard_error=score.standard_error,
                predicted=predicted_recall(model, task, precision, num_sequences, seed),
                heads=measure_heads(model, batch, scale=scale),
            )
        )
    return found


def stored_accuracy(store: RunStore, precision: StatePrecision) -> Callable[[RunRecord], float]:
    """The accuracy of a run with its state stored, on the run's own test set.

    Accuracies are kept in the folder `stored-states` of the store, each under an identity made of the run and the
    precision; the runs themselves keep their names and records.
    """

    def found(record: RunRecord) -> float:
        identity = {"run": record.run, "precision": precision.identity()}
        path = store.root / FOLDER / f"{identity_hash('StoredState', identity)}.json"
        accuracy = _kept(path, identity)
        if accuracy is None:
            from recallscope.architectures.stored_state import StoredState
            from recallscope.train.evaluate import evaluate
            from recallscope.train.loop import stream
            from recallscope.train.weights import read_weights

            model, task = read_weights(store.folder(record.run) / WEIGHTS)
            stored = StoredState(model, precision, seed=record.spec.seed)
            accuracy = evaluate(stored, task, record.spec.train.eval_size, stream(record.spec, "test")).accuracy
            kept = {"identity": identity, "test_accuracy": accuracy, "exact_accuracy": record.test_accuracy}
            path.parent.mkdir(exist_ok=True)
            write_atomically(path, json.dumps(kept, indent=1).encode() + b"\n")
        return accuracy

    return found


def _kept(path: Path, identity: dict[str, Any]) -> float | None:
    """The accuracy in a file of this identity; None where there is none, or another's."""
    try:
        kept = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    found = kept.get("test_accuracy") if isinstance(kept, dict) and kept.get("identity") == identity else None
    return float(found) if isinstance(found, int | float) and 0 <= found <= 1 else None
