"""Models on disk: what a path holds, ours or a Hugging Face folder, and loading it. Only loading needs torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recallscope.specs import TASKS, TaskSpec, parse_task

if TYPE_CHECKING:
    from recallscope.architectures.model import RecallModel


def is_weights(text: str) -> bool:
    """Whether an argument names weights: a .safetensors file, whether it is there or not, or a folder that has some."""
    path = Path(text)
    return path.suffix == ".safetensors" or weights_file(path).is_file() or is_pretrained(path)


def load_model(
    path: Path, fields: dict[str, Any], kind: str | None = None, *, trust_code: bool | str = False
) -> tuple[RecallModel, TaskSpec]:
    """The model on disk, ours or Hugging Face's, and the task to measure it on, with some fields changed.

    `trust_code` is `read_weights`'s.
    """
    if is_pretrained(path):
        from recallscope.architectures.pretrained import from_pretrained

        if "num_facts" in TASKS.find(kind or "mqar").model_fields and "num_facts" not in fields:
            raise ValueError(f"{path} holds a language model without a recall task: --num-facts is needed.")
        model: RecallModel = from_pretrained(path)
        base: dict[str, Any] = {"kind": kind or "mqar", "vocab_size": model.vocab_size // 2 * 2}
    else:
        from recallscope.train.weights import read_weights

        model, made_for = read_weights(weights_file(path), trust_code=trust_code)
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


def task_of(path: Path) -> str | None:
    """The kind of task in the header of a weights file, read without torch; None if it is not such a file."""
    try:
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(min(length, 2**24)))
        return str(json.loads(header["__metadata__"]["task"])["kind"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
