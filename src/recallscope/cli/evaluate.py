"""`recallscope evaluate`: accuracy of weights on disk, designed, trained, or a language model's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from recallscope.cli.flags import SpecFlags, names_from, typed_value, with_spec_flags
from recallscope.cli.output import print_json
from recallscope.specs import TASKS
from recallscope.train.saved import is_pretrained, load_model, task_of, weights_file, what_is_measured


@dataclass(kw_only=True)
class Evaluate(SpecFlags):
    """recallscope evaluate WEIGHTS

    Measure weights written by `recallscope train --out` or `recallscope design --out` on fresh sequences of the task
    they were made for, or of a variant of it: every field of the task is a flag (more facts, longer sequences, other
    filler).

    WEIGHTS may also be a Hugging Face folder of a Mamba or Mamba-2 language model (config.json and safetensors). Its
    tokens are then used as keys and values by their numbers, and no text is read:

    recallscope evaluate FOLDER --num-facts 4 --vocab-size 64 --num-examples 20
    """

    weights: Annotated[Path, tyro.conf.Positional]
    """A .safetensors file, the folder that train --out wrote, or a Hugging Face folder."""
    task: Annotated[str | None, names_from(TASKS.names)] = None
    """Another kind of task than the weights were made for."""
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

        model, task = load_model(self.weights, self.given("task"), self.task)
        import torch

        use_threads(1)
        device = pick_device(self.device)
        score = evaluate(model.to(device), task, self.num_examples, torch.Generator(device).manual_seed(self.seed))
        if self.json:
            specs = {"model": model.spec.model_dump(mode="json"), "task": task.model_dump(mode="json")}
            print_json(asdict(score) | specs)
        else:
            print(f"accuracy {score.accuracy:.4f} ± {score.standard_error:.4f}  ({score.queries:,} queries)")
            if is_pretrained(self.weights):
                print(what_is_measured(model, task))
        return 0


def verb_for(arguments: Sequence[str]) -> type:
    """The verb with the fields of the task that is asked for, or that the weights were made for."""
    found = (task_of(weights_file(Path(word))) for word in arguments if word[:1] != "-")
    kind = typed_value(arguments, "--task") or next(filter(None, found), "mqar")
    return with_spec_flags(Evaluate, {"task": TASKS.find(kind)}, show_defaults=False)
