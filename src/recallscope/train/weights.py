"""Weights on disk: safetensors that say what model and task they belong to. Never pickle."""

import json
import shlex
from pathlib import Path

from pydantic import ValidationError
from safetensors.torch import save

from recallscope.architectures.model import RecallModel, check_shapes, load_weights, read_tensors
from recallscope.architectures.ram import blank_tensors, require_memory, weight_bytes
from recallscope.atomic import digest_of, write_atomically
from recallscope.records import RunRecord, record_text
from recallscope.specs import TaskSpec, check_saved_model, names_code, parse_model, parse_task

FORMAT = "recallscope-weights-1"


def write_weights(path: Path, model: RecallModel, task: TaskSpec) -> None:
    """The model's tensors under their names, with model and task as JSON in the header."""
    why_not = model.why_not_saved()
    if why_not:
        raise ValueError(f"{why_not}, so this model could not be reloaded from the file. Keep the original folder.")
    tensors = {name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
    header = {"format": FORMAT, "model": model.spec.canonical_json(), "task": task.canonical_json()}
    write_atomically(path, save(tensors, metadata=header))


def read_weights(path: Path | str, *, trust_code: bool | str = False) -> tuple[RecallModel, TaskSpec]:
    """The model and the task it was made for, or a ValueError that says what the file is instead.

    If the header names code, a module that is not of this package, the file is refused and that code is neither
    imported nor looked for. `trust_code` allows it: True, or the one name (`my_nets.py:MyModel`) that is trusted.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(2, "no such weights file", str(path))
    header, tensors = read_tensors(path)
    if header.get("format") != FORMAT:
        raise ValueError(
            f"{path} holds tensors that recallscope did not write (format {header.get('format')!r}, expected "
            f"{FORMAT!r}). "
            f"Weights are written by recallscope train and design."
        )
    try:
        fields = json.loads(header["model"])
        check_saved_model(fields)
        kind = fields.get("kind") if isinstance(fields, dict) else None
        if names_code(kind) and trust_code not in (True, kind):
            command = shlex.join(["recallscope", "measure", str(kind), "--weights", str(path)])
            raise ValueError(
                f"its header names the code {kind!r}, and no code is imported because a file names it. If you trust "
                f"it, name it yourself, {command}, or add --trust-code (in Python: trust_code=True)"
            )
        spec, task = parse_model(fields), parse_task(json.loads(header["task"]))
        if not names_code(kind) and spec.size_of("num_layers") > len(tensors):
            raise ValueError(f"its header has {spec.size_of('num_layers'):,} layers, and it has {len(tensors)} tensors")
    except (KeyError, ValueError, RecursionError) as error:  # a ValidationError is a ValueError
        reason = error.errors(include_url=False)[0]["msg"] if isinstance(error, ValidationError) else error
        raise ValueError(f"{path} holds a model that this installation cannot build: {reason}.") from error
    blank = {} if names_code(kind) else blank_tensors(spec, task.vocab_size)
    if blank:
        check_shapes(blank, tensors, path, "header")
    else:
        require_memory(weight_bytes(spec, task.vocab_size), f"the model of {path}", "Use a machine with more.")
    try:
        model = spec.blank_model(task.vocab_size)
    except RuntimeError as error:  # numbers that no machine has, if there was nothing to compare shapes with
        raise ValueError(f"{path}: the model of its header cannot be built ({str(error).splitlines()[0]}).") from error
    load_weights(model, tensors, path)
    return model, task


def load_tensors(path: Path, model: RecallModel) -> None:
    """Fill a model with the tensors of any safetensors file, such as `safetensors.torch.save_file` wrote of a module.

    Names are those of the model or, of a module of the user's own, those of the module itself.
    """
    _, tensors = read_tensors(path)
    wanted = model.state_dict()
    for inner, _ in model.named_children():
        if {f"{inner}.{name}" for name in tensors} <= wanted.keys():
            tensors = {f"{inner}.{name}": tensor for name, tensor in tensors.items()}
    there = {wanted[name].data_ptr(): tensor for name, tensor in tensors.items() if name in wanted}
    tied = {name: there[own.data_ptr()] for name, own in wanted.items() if own.data_ptr() in there}  # saved once
    tensors = tied | tensors
    load_weights(model, tensors, path)


def write_record(path: Path, record: RunRecord) -> None:
    """The record as JSON, whole or not at all, with a digest of itself and of weights that lie beside it."""
    weights = path.with_name("weights.safetensors")
    write_atomically(path, record_text(record, digest_of(weights.read_bytes()) if weights.is_file() else None))
