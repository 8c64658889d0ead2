"""`recallscope evaluate`: accuracy of weights on disk, designed, trained, or a language model's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from recallscope.cli.flags import SpecFlags, names_from, print_json, typed_value, with_spec_flags
from recallscope.specs import TASKS, TaskSpec, parse_task

if TYPE_CHECKING:
    from recallscope.architectures.model import RecallModel


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


def load_model(path: Path, fields: dict[str, Any], kind: str | None = None) -> tuple[RecallModel, TaskSpec]:
    """The model on disk, ours or Hugging Face's, and the task to measure it on, with some fields changed."""
    if is_pretrained(path):
        from recallscope.architectures.pretrained import from_pretrained

        if "num_facts" in TASKS.find(kind or "mqar").model_fields and "num_facts" not in fields:
            raise ValueError(f"{path} holds a language model, made for no task of ours: --num-facts is needed.")
        model: RecallModel = from_pretrained(path)
        base: dict[str, Any] = {"kind": kind or "mqar", "vocab_size": model.vocab_size // 2 * 2}
    else:
        from recallscope.train.weights import read_weights

        model, made_for = read_weights(weights_file(path))
        base = made_for.leaving_out()
        if kind not in (None, made_for.kind):
            known = TASKS.find(kind).model_fields.keys() - {"length"}
            base = {name: value for name, value in base.items() if name in known} | {"kind": kind}
    task = parse_task(base | fields)
    if task.vocab_size > model.vocab_size:
        raise ValueError(
            f"vocab_size={task.vocab_size}: the model in {path} knows {model.vocab_size} tokens. "
            f"Use --vocab-size {model.vocab_size // 2 * 2} or less."
        )
    return model, task


def is_pretrained(path: Path) -> bool:
    """Whether this is a Hugging Face folder, which has a config.json and no weights of ours."""
    return (path / "config.json").is_file() and not weights_file(path).is_file()


def what_is_measured(model: RecallModel, task: TaskSpec) -> str:
    """What an accuracy of a language model on a recall task means."""
    return (
        f"measured: recall of {task.kind} with the token numbers 0..{task.vocab_size - 1} as keys and values; no text "
        f"and no tokenizer. An answer is right if its logit is the largest of all {model.vocab_size:,}."
    )


def weights_file(path: Path) -> Path:
    """The file itself, or the weights in the folder that train --out wrote."""
    return path / "weights.safetensors" if path.is_dir() else path


def verb_for(arguments: Sequence[str]) -> type:
    """The verb with the fields of the task that is asked for, or that the weights were made for."""
    found = (task_of(weights_file(Path(word))) for word in arguments if word[:1] != "-")
    kind = typed_value(arguments, "--task") or next(filter(None, found), "mqar")
    return with_spec_flags(Evaluate, {"task": TASKS.find(kind)}, show_defaults=False)


def task_of(path: Path) -> str | None:
    """The kind of task in the header of a weights file, read without torch; None if it is not such a file."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, 2**24)))
        return str(json.loads(header["__metadata__"]["task"])["kind"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
