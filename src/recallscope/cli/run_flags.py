"""Flags that describe a run: a preset, a task, a model and their fields. Shared by `train` and `inspect`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import arg

from recallscope.cli.flags import OptionalText, SpecFlags, json_table, typed_value, with_spec_flags
from recallscope.presets import find_preset, preset_run
from recallscope.specs import TASKS, Frozen, RunSpec, TrainSpec, find_architecture


@dataclass(kw_only=True)
class RunFlags(SpecFlags):
    """A preset, and what is changed of it; or a task and a model."""

    preset: OptionalText = None
    """Start from this published experiment: dn-linear, dn-full, layers, layers-ar, heads, large-vocab, repeated-keys,
    mechanism, minimality, minimality-a .. minimality-e."""
    model: OptionalText = None
    """Architecture: linear, multihead, full (Mamba), full2 (Mamba-2), one of a plugin, or a module of your own,
    my_nets.py:MyModel. Its fields are flags: --model full --help lists them."""
    model_args: Annotated[str | None, arg(metavar="JSON", help_behavior_hint="")] = None
    """Fields of the model as a JSON table; for a module of your own the arguments of its constructor."""
    task: OptionalText = None
    """mqar: every fact is asked; ar: one is; repeated: keys are written several times; or one of a plugin."""
    seed: int = 0
    """Random seed of the run."""

    def run_spec(self) -> RunSpec:
        """The run: preset first, then flags on top."""
        task, model, train = (self.given(part) for part in ("task", "model", "train"))
        model |= json_table(self.model_args, "--model-args")
        if self.task:
            task["kind"] = self.task
        if self.model:
            model["kind"] = self.model
        if self.preset is not None:
            return preset_run(self.preset, task=task, model=model, train=train, seed=self.seed)
        self._check_needed(task, model)
        return RunSpec.model_validate({"task": task, "model": model, "train": train, "seed": self.seed})

    def _check_needed(self, task: dict[str, Any], model: dict[str, Any]) -> None:
        missing = []
        kinds = TASKS.find(task.get("kind", "mqar")), find_architecture(str(model.get("kind", "linear")))
        for fields, spec in zip((task, model), kinds, strict=True):
            needed = [name for name, info in spec.model_fields.items() if info.is_required()]
            missing += [name for name in needed if name not in fields and name not in spec.FOLLOWING]
        if missing:
            flags = ", ".join("--" + name.replace("_", "-") for name in missing)
            raise ValueError(f"without --preset a run needs {flags} as well. Try --preset dn-linear.")


def with_run_flags(base: type, arguments: Sequence[str]) -> type:
    """The verb with the fields of the task and the model that the command line names, and those of training."""
    name = typed_value(arguments, "--preset")
    preset = find_preset(name) if name else None
    of_preset = {part: getattr(preset, part).get("kind") if preset else None for part in ("task", "model")}
    task = typed_value(arguments, "--task") or of_preset["task"] or "mqar"
    model = typed_value(arguments, "--model") or of_preset["model"] or "linear"
    specs: dict[str, type[Frozen]] = {"task": TASKS.find(task), "model": find_architecture(model), "train": TrainSpec}
    return with_spec_flags(base, specs, show_defaults=preset is None)
