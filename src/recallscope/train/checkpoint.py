"""Checkpoints: the state of a run on disk, enough to resume bit for bit. Safetensors, written whole or not at all."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from recallscope.atomic import write_atomically
from recallscope.records import Evaluation
from recallscope.specs import RunSpec

FORMAT = "recallscope-checkpoint-1"


class OtherRunError(ValueError):
    """The checkpoint belongs to another run; the message says what differs."""


@dataclass
class Progress:
    """All of a run's state that is not a tensor, and its tensors by name."""

    run: str
    identity: dict[str, Any]
    step: int = 0
    seconds: float = 0.0
    best_step: int = 0
    best_accuracy: float = -1.0
    history: list[Evaluation] = field(default_factory=list)
    tensors: dict[str, Tensor] = field(default_factory=dict)


def write_checkpoint(path: Path, progress: Progress) -> None:
    """Replace the file in one motion: after a crash it holds the old state or the new, never a mixture."""
    facts = {name: getattr(progress, name) for name in ("step", "seconds", "best_step", "best_accuracy")}
    facts["history"] = [evaluation.model_dump() for evaluation in progress.history]
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in progress.tensors.items()}
    header = {"format": FORMAT, "run": progress.run}
    header |= {"identity": json.dumps(progress.identity), "facts": json.dumps(facts)}
    write_atomically(path, save(tensors, metadata=header))


def read_checkpoint(path: Path, spec: RunSpec) -> Progress | None:
    """The state saved for this run; None if there is none or it is damaged. OtherRunError if it is another run's."""
    run = spec.content_hash()
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                return None
            if metadata.get("run") == run:
                facts: dict[str, Any] = json.loads(metadata["facts"])
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except (FileNotFoundError, SafetensorError, ValueError, KeyError):
        return None
    if metadata.get("run") != run:
        identity = json.loads(metadata.get("identity", "{}"))
        differs = _differences(identity, spec.identity()) or "in what it trains"
        raise OtherRunError(
            f"{path} is the checkpoint of another run, {metadata.get('run')}; it differs {differs}. It is left as it "
            f"is: resume that run with its own settings, remove the file, or choose another folder."
        )
    history = [Evaluation(**entry) for entry in facts.pop("history")]
    return Progress(run=run, identity=spec.identity(), history=history, tensors=tensors, **facts)


def _differences(old: dict[str, Any], new: dict[str, Any]) -> str:
    """The fields in which two identities differ, old value first."""
    found = []
    for part in sorted({*old, *new}):
        a, b = old.get(part), new.get(part)
        if isinstance(a, dict) and isinstance(b, dict):
            found += [
                f"in {part}.{name} ({a.get(name, 'default')} there, {b.get(name, 'default')} here)"
                for name in sorted({*a, *b})
                if a.get(name) != b.get(name)
            ]
        elif a != b:
            found.append(f"in {part} ({'default' if a is None else a} there, {'default' if b is None else b} here)")
    changed = any("model.digest" in text for text in found)
    return ", ".join(found) + (": the model's source file has changed" if changed else "")
