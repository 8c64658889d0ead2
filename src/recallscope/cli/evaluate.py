"""`recallscope evaluate`: accuracy of weights on disk, designed or trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from recallscope.cli.flags import OptionalInt, Unset, print_json
from recallscope.tasks.associative_recall import Filler


@dataclass(kw_only=True)
class Evaluate:
    """recallscope evaluate WEIGHTS

    Measure weights written by `recallscope train --out` or `recallscope design --out` on fresh sequences of the task
    they were
    made for, or of a variant of it (more facts, longer sequences, other filler).
    """

    weights: Annotated[Path, tyro.conf.Positional]
    """A .safetensors file, or the folder that train --out wrote."""
    num_examples: int = 10_000
    """Sequences."""
    seed: int = 0
    """Owner of the sequences."""
    num_facts: OptionalInt = None
    """N_f, instead of the one trained on."""
    length: OptionalInt = None
    """L, instead of the one trained on."""
    filler: Annotated[Filler | None, Unset] = None
    """Filler, instead of the one trained on."""
    device: str = "auto"
    """auto, cpu, cuda ..."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> int:
        """Load, measure, print."""
        if not 1 <= self.num_examples <= 10**8:
            raise ValueError(f"num_examples={self.num_examples} is outside 1..10^8.")
        from recallscope.cli.training import pick_device, use_threads
        from recallscope.specs import TaskSpec
        from recallscope.train.evaluate import evaluate
        from recallscope.train.weights import read_weights

        path = self.weights / "weights.safetensors" if self.weights.is_dir() else self.weights
        model, task = read_weights(path)
        changes = {
            name: getattr(self, name) for name in ("num_facts", "length", "filler") if getattr(self, name) is not None
        }
        if "num_facts" in changes and "length" not in changes:
            changes["length"] = None
        task = TaskSpec.model_validate(task.model_dump() | changes)
        import torch

        use_threads(1)
        device = pick_device(self.device)
        score = evaluate(model.to(device), task, self.num_examples, torch.Generator(device).manual_seed(self.seed))
        if self.json:
            print_json(
                {
                    "accuracy": score.accuracy,
                    "standard_error": score.standard_error,
                    "queries": score.queries,
                    "model": model.spec.model_dump(mode="json"),
                    "task": task.model_dump(mode="json"),
                }
            )
        else:
            print(f"accuracy {score.accuracy:.4f} ± {score.standard_error:.4f}  ({score.queries:,} queries)")
        return 0
