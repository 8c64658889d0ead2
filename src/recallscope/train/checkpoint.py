"""Where a run stands, on disk: enough to go on as if it had never stopped. Safetensors, written whole or not at all."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from recallscope.atomic import write_atomically
from recallscope.records import Evaluation

FORMAT = "recallscope-checkpoint-1"


@dataclass
class Progress:
    """All of a run's state that is not a tensor, and its tensors by name."""

    run: str
    step: int = 0
    seconds: float = 0.0
    best_step: int = 0
    best_accuracy: float = -1.0
    history: list[Evaluation] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)


def write_checkpoint(path: Path, progress: Progress) -> None:
    """Replace the file in one motion: after a crash it holds the old state or the new, never a mixture."""
    facts = {
        "step": progress.step,
        "seconds": progress.seconds,
        "best_step": progress.best_step,
        "best_accuracy": progress.best_accuracy,
        "history": [evaluation.model_dump() for evaluation in progress.history],
    }
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in progress.tensors.items()}
    data = save(tensors, metadata={"format": FORMAT, "run": progress.run, "facts": json.dumps(facts)})
    write_atomically(path, data)


def read_checkpoint(path: Path, run: str) -> Progress | None:
    """The state saved for this run; None if there is none, or it is damaged or another run's: then start afresh."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT or metadata.get("run") != run:
                return None
            facts: dict[str, Any] = json.loads(metadata["facts"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (FileNotFoundError, SafetensorError, ValueError, KeyError):
        return None
    history = [Evaluation(**entry) for entry in facts.pop("history")]
    return Progress(run=run, history=history, tensors=tensors, **facts)
