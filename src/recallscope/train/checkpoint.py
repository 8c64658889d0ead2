"""Checkpoints: the state of a run on disk, enough to resume bit for bit. Safetensors, written whole or not at all."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from recallscope.atomic import NO_DIGEST, is_storage_fault, seal_is_broken, sealed, write_atomically
from recallscope.records import Evaluation, differences
from recallscope.specs import RunSpec
from recallscope.train.levels import LevelState

FORMAT = "recallscope-checkpoint-2-sealed"
READABLE = (FORMAT, "recallscope-checkpoint-1")  # the first had no seal


class CheckpointError(ValueError):
    """A file that cannot be resumed from; the message says why. It is left as it is: the caller may set it aside."""


class OtherRunError(CheckpointError):
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
    levels: LevelState = field(default_factory=LevelState)
    tensors: dict[str, Tensor] = field(default_factory=dict)


def write_checkpoint(path: Path, progress: Progress) -> None:
    """Replace the file in one motion: after a crash it holds the old state or the new, never a mixture."""
    facts = {name: getattr(progress, name) for name in ("step", "seconds", "best_step", "best_accuracy")}
    facts["history"] = [evaluation.model_dump() for evaluation in progress.history]
    facts["levels"] = asdict(progress.levels)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in progress.tensors.items()}
    header = {"format": FORMAT, "run": progress.run, "digest": NO_DIGEST}
    header |= {"identity": json.dumps(progress.identity), "facts": json.dumps(facts)}
    write_atomically(path, sealed(save(tensors, metadata=header)))


def read_checkpoint(path: Path, spec: RunSpec) -> Progress | None:
    """The state saved for this run; None if there is no file. CheckpointError if there is one of no use to it."""
    run = spec.content_hash()
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise CheckpointError(f"{path} is a link or no file, and is not followed.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if seal_is_broken(path.read_bytes(), metadata):
                raise CheckpointError(f"{path} is damaged: its bytes have changed since it was written.")
            if metadata.get("format") not in READABLE:
                raise CheckpointError(
                    f"{path} is not a checkpoint of this version (format {metadata.get('format')!r}, expected "
                    f"{FORMAT!r})."
                )
            if metadata.get("run") != run:
                differs = differences(json.loads(metadata["identity"]), spec.identity())
                raise OtherRunError(
                    f"{path} is the checkpoint of another run, {metadata.get('run')}; it differs {differs}. It is left "
                    f"as it is: resume that run with its own settings, choose another folder, or set the checkpoint "
                    f"aside with --overwrite."
                )
            facts: dict[str, Any] = json.loads(metadata["facts"])
            history = [Evaluation(**entry) for entry in facts.pop("history")]
            levels = LevelState(**facts.pop("levels", {}))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        return Progress(run=run, identity=spec.identity(), history=history, levels=levels, tensors=tensors, **facts)
    except FileNotFoundError:
        return None
    except CheckpointError:
        raise
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if is_storage_fault(error):
            raise
        raise CheckpointError(f"{path} is damaged ({type(error).__name__}: {error}).") from error


def check_tensors(path: Path, progress: Progress, wanted: Mapping[str, Tensor]) -> None:
    """CheckpointError unless the checkpoint has the tensors that this version saves of the run, shape by shape."""
    shapes, expected = ({name: tuple(t.shape) for name, t in each.items()} for each in (progress.tensors, wanted))
    wrong = sorted(name for name in {*shapes, *expected} if shapes.get(name) != expected.get(name))
    if wrong:
        raise CheckpointError(
            f"{path} was written by another version: {wrong[0]} has shape {shapes.get(wrong[0])}, and this one saves "
            f"{expected.get(wrong[0])}."
        )
