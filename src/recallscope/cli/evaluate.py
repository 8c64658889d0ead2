"""`recallscope evaluate`: accuracy of weights on disk, designed or trained."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from recallscope.cli.flags import SpecFlags, print_json, with_spec_flags
from recallscope.specs import TASKS


@dataclass(kw_only=True)
class Evaluate(SpecFlags):
    """recallscope evaluate WEIGHTS

    Measure weights written by `recallscope train --out` or `recallscope design --out` on fresh sequences of the task
    they were made for, or of a variant of it: every field of the task is a flag (more facts, longer sequences, other
    filler).
    """

    weights: Annotated[Path, tyro.conf.Positional]
    """A .safetensors file, or the folder that train --out wrote."""
    num_examples: int = 10_000
    """Sequences."""
    seed: int = 0
    """Random seed of the sequences."""
    device: str = "auto"
    """auto, cpu, cuda ..."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Load, measure, print."""
        if not 1 <= self.num_examples <= 10**8:
            raise ValueError(f"num_examples={self.num_examples} is outside 1..10^8.")
        from recallscope.cli.training import pick_device, use_threads
        from recallscope.train.evaluate import evaluate
        from recallscope.train.weights import read_weights

        model, task = read_weights(weights_file(self.weights))
        task = type(task).model_validate(task.leaving_out() | self.given("task"))
        import torch

        use_threads(1)
        device = pick_device(self.device)
        score = evaluate(model.to(device), task, self.num_examples, torch.Generator(device).manual_seed(self.seed))
        if self.json:
            specs = {"model": model.spec.model_dump(mode="json"), "task": task.model_dump(mode="json")}
            print_json(asdict(score) | specs)
        else:
            print(f"accuracy {score.accuracy:.4f} ± {score.standard_error:.4f}  ({score.queries:,} queries)")
        return 0


def weights_file(path: Path) -> Path:
    """The file itself, or the weights in the folder that train --out wrote."""
    return path / "weights.safetensors" if path.is_dir() else path


def verb_for(arguments: Sequence[str]) -> type:
    """The verb with the fields of the task that the weights were made for."""
    kind = next(filter(None, (_task_of(weights_file(Path(word))) for word in arguments if word[:1] != "-")), "mqar")
    return with_spec_flags(Evaluate, {"task": TASKS.find(kind)}, show_defaults=False)


def _task_of(path: Path) -> str | None:
    """The kind of task in the header of a weights file, read without torch; None if it is not such a file."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, 2**24)))
        return str(json.loads(header["__metadata__"]["task"])["kind"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
