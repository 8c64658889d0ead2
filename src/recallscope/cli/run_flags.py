"""Flags that describe a run: a file, a preset, a task, a model and their fields. Shared by the verbs that train."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError
from tyro.conf import arg

from recallscope.cli.flags import (
    OptionalInt,
    OptionalPath,
    SpecFlags,
    json_table,
    names_from,
    typed_value,
    with_spec_flags,
)
from recallscope.faults import in_sentences
from recallscope.presets import PRESETS, find_preset, merged
from recallscope.specs import (
    ARCHITECTURES,
    PARTS,
    TASKS,
    Frozen,
    RunSpec,
    TrainSpec,
    field_owners,
    find_architecture,
    unknown_field,
)

Fields = dict[str, Any]  # of a run, by part


@dataclass(kw_only=True)
class RunFlags(SpecFlags):
    """A preset or a file, and what is changed of it; or a task and a model."""

    config: OptionalPath = None
    """Start from this TOML file, with tables task, model and train as in a grid; flags change it."""
    preset: Annotated[str | None, names_from(PRESETS.keys)] = None
    """Start from this published experiment."""
    model: Annotated[str | None, names_from(ARCHITECTURES.names)] = None
    """Architecture, or a module of your own, my_nets.py:MyModel. Its fields are flags: --model mamba --help."""
    model_args: Annotated[str | None, arg(metavar="JSON", help_behavior_hint="")] = None
    """Fields of the model as a JSON table; for a module of your own the arguments of its constructor."""
    task: Annotated[str | None, names_from(TASKS.names)] = None
    """mqar asks for every fact, ar for one, repeated writes keys several times. Its fields are flags."""
    seed: OptionalInt = None
    """Random seed of the run (default: 0)."""

    def run_spec(self, recipe: Mapping[str, Any] | None = None) -> RunSpec:
        """The run: preset or file first, or the fields of a recipe of training; then flags on top."""
        fields = self.run_fields(recipe)
        missing = self.missing(fields)
        if missing and not self.starts:
            flags = ", ".join("--" + name.replace("_", "-") for name in missing)
            raise ValueError(f"without --preset or --config a run needs {flags} as well. Try --preset dn-linear.")
        try:
            return RunSpec.model_validate(fields)
        except ValidationError as error:
            part, *names = map(str, error.errors()[0]["loc"] or ("",))
            in_file = start_of(None, self.config).get(part, {}) if self.config and names else {}
            if self.config is None or not set(names) & set(in_file) - set(self.given(part)):
                raise
            line = _line_of(self.config, part, names[0])
            raise ValueError(f"{self.config}{line}: {in_sentences(error)}") from error

    @property
    def starts(self) -> bool:
        """Whether a preset or a file says where to start."""
        return self.preset is not None or self.config is not None

    def run_fields(self, recipe: Mapping[str, Any] | None = None) -> Fields:
        """The fields of the run by part, as far as they are given."""
        changes: Fields = {part: self.given(part) for part in PARTS}
        changes["model"] |= json_table(self.model_args, "--model-args")
        for part in ("task", "model"):
            changes[part] |= {"kind": value} if (value := getattr(self, part)) else {}
        base = start_of(self.preset, self.config) or {"train": dict(recipe or {})}
        fields: Fields = {part: merged(base.get(part, {}), changes[part]) for part in PARTS}
        return fields | {"seed": base.get("seed", 0) if self.seed is None else self.seed}

    @staticmethod
    def missing(fields: Mapping[str, Any]) -> list[str]:
        """Fields that a run must have, and that neither are given nor follow."""
        kinds = (
            TASKS.find(fields["task"].get("kind", "mqar")),
            find_architecture(str(fields["model"].get("kind", "linear_mamba"))),
        )
        return [
            name
            for part, spec in zip(("task", "model"), kinds, strict=True)
            for name, info in spec.model_fields.items()
            if info.is_required() and name not in fields[part] and name not in spec.FOLLOWING
        ]


def start_of(preset: str | None, config: Path | None) -> Fields:
    """The fields that a run starts from: those of a preset, or of a file; none if there is neither."""
    if preset is not None and config is not None:
        raise ValueError('--preset and --config both say where to start. Write preset = "NAME" in the file instead.')
    if preset is not None:
        return find_preset(preset).fields()
    if config is None:
        return {}
    from recallscope.runs.grid import read_grid

    grid = read_grid(config)
    if grid.varied or grid.skip:
        raise ValueError(f"{config} is a grid of several runs. Use: recallscope sweep {shlex.quote(str(config))}")
    return grid.base


def _line_of(path: Path, table: str, name: str) -> str:
    from recallscope.runs.grid import line_of

    return line_of(path.read_text(encoding="utf-8"), table, name)


def with_run_flags(base: type, arguments: Sequence[str]) -> type:
    """The verb with the fields of the task and the model that the command line names, and those of training."""
    config = typed_value(arguments, "--config")
    start = start_of(typed_value(arguments, "--preset"), Path(config) if config else None)
    kinds = {part: typed_value(arguments, f"--{part}") or start.get(part, {}).get("kind") for part in ("task", "model")}
    specs: dict[str, type[Frozen]] = {
        "task": TASKS.find(kinds["task"] or "mqar"),
        "model": find_architecture(kinds["model"] or "linear_mamba"),
        "train": TrainSpec,
    }
    verb = with_spec_flags(base, specs, start=start)
    _refuse_flags_of_others(verb, specs["model"], arguments)
    return verb


def _refuse_flags_of_others(verb: type, model: type[Any], arguments: Sequence[str]) -> None:
    """Say whose field a flag is, if not of the task and the model that were chosen."""
    known = {field.name for field in dataclasses.fields(verb)}
    for word in arguments:
        flag = word.partition("=")[0]
        name = flag.removeprefix("--").replace("-", "_")
        owners = field_owners(name) if flag.startswith("--") and name not in known else {}
        for part, kinds in owners.items():
            raise ValueError(f"{flag}: {unknown_field(name, model)} Add --{part} {kinds[0]}.")
