"""Flags made from specs: every field of a spec is a flag of the same name, with its description as help.

`RunFlags` describe a run, for the commands that train: a file, a preset, a task, a model and their fields.
`problem_flags` are the sizes of a recall problem, for `predict` and `size`.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import types
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from tyro.conf import arg

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
from recallscope.state_precision import Rounding, Scale, StatePrecision, format_names

# flags that may be left out; help shows what they take, not the None they start from
OptionalInt = Annotated[int | None, arg(metavar="INT", help_behavior_hint="")]
OptionalText = Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")]
OptionalPath = Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")]
Unset = arg(help_behavior_hint="")
Quiet = Annotated[bool, arg(aliases=["-q"])]
STORES = (Path("results/paper"), Path("runs/paper"))  # where the paper's runs are, if --store is left out
_METAVARS = {int: "INT", float: "FLOAT"}
_SWITCH = {"yes": True, "no": False}


def names_from(names: Callable[[], Iterable[str]]) -> Any:
    """Of a flag that takes such names, or others: `names` gives what is known now, and they end its help."""

    def end_of_help(default: str) -> str:
        chosen = "" if default in ("None", "") else f"; default: {default}"
        return f"({', '.join(names())}{chosen})"

    return arg(metavar="NAME", help_behavior_hint=end_of_help)


def with_spec_flags(
    base: type,
    specs: Mapping[str, type[Frozen]],
    *,
    only: Iterable[str] | None = None,
    show_defaults: bool = True,
    start: Mapping[str, Mapping[str, Any]] | None = None,
) -> type:
    """A command with one more flag for every field of the specs, all of which may be left out.

    `specs` is a mapping from part to spec class. Names that are taken already are prefixed with the part.
    The command's `given(part)` tells what was typed. Help shows the defaults: those of `start`, if it has them.
    """
    taken = {field.name for field in dataclasses.fields(base)}
    places: dict[str, tuple[str, str]] = {}
    fields: list[tuple[str, Any, Any]] = []
    for part, spec in specs.items():
        for name, info in spec.model_fields.items():
            if name == "kind" or (only is not None and name not in only):
                continue
            flag = f"{part}_{name}" if name in taken else name
            taken.add(flag)
            places[flag] = (part, name)
            text = (info.description or "").strip()
            if show_defaults:
                text += _default_text(info, (start or {}).get(part, {}).get(name))
            fields.append((flag, _flag_type(info, text), dataclasses.field(default=None)))
    command = dataclasses.make_dataclass(base.__name__, fields, bases=(base,), kw_only=True)
    command.__doc__ = base.__doc__
    command.__module__ = base.__module__
    command.SPEC_FLAGS = places  # type: ignore[attr-defined]
    return command


class SpecFlags:
    """Base of commands made by `with_spec_flags`."""

    SPEC_FLAGS: Mapping[str, tuple[str, str]] = {}

    def given(self, part: str) -> dict[str, Any]:
        """The fields of a part that were given as flags."""
        found = {}
        for flag, (owner, name) in self.SPEC_FLAGS.items():
            value = getattr(self, flag)
            if owner == part and value is not None:
                found[name] = _SWITCH.get(value, value) if isinstance(value, str) else value
        return found


def _default_text(info: FieldInfo, given: Any) -> str:
    """What a field is if its flag is left out; empty if it is needed, or follows from other fields."""
    default = info.get_default(call_default_factory=True) if given is None and not info.is_required() else given
    if default is None:
        return ""
    return f" (default: {({True: 'yes', False: 'no'}[default]) if isinstance(default, bool) else default})"


def _flag_type(info: FieldInfo, text: str) -> Any:
    """An optional flag of the field's type; yes or no for a switch."""
    kind = _plain_type(info.annotation)
    options: dict[str, Any] = {"help": text or " ", "help_behavior_hint": ""}
    if kind is bool:
        kind = Literal["yes", "no"]
    if get_origin(kind) is Literal:
        options["metavar"] = "{" + ",".join(map(str, get_args(kind))) + "}"
    else:
        kind = kind if kind in _METAVARS else str
        options["metavar"] = _METAVARS.get(kind, "TEXT")
    return Annotated[Union[kind, None], arg(**options)]  # noqa: UP007 (a type in a variable)


def _plain_type(annotation: Any) -> Any:
    """int of Annotated[int, ...], and of int | None."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _plain_type(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        left = [part for part in get_args(annotation) if part is not type(None)]
        return _plain_type(left[0]) if len(left) == 1 else str
    return annotation


def typed_value(arguments: Sequence[str], flag: str) -> str | None:
    """The value of a flag on the command line, read before the parser is made; None if it is not there."""
    for index, word in enumerate(arguments):
        if word == flag and index + 1 < len(arguments):
            return arguments[index + 1]
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


def json_table(text: str | None, flag: str) -> dict[str, Any]:
    """A JSON object given as a flag, or a sentence that shows one."""
    if text is None:
        return {}
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(
            f"{flag} {text[:200]!r} is not JSON ({error}). Write such as {flag} '{{\"width\": 64}}'."
        ) from error
    if not isinstance(table, dict):
        raise ValueError(f"{flag} {text!r} is a {type(table).__name__}. Write a table such as '{{\"width\": 64}}'.")
    return table


# annotations are text here, and a lambda in such a text does not find this module's names
_SCALES, _ROUNDINGS = names_from(lambda: get_args(Scale)), names_from(lambda: get_args(Rounding))


@dataclass(kw_only=True)
class StateFlags:
    """How a model's state is stored between tokens."""

    state_format: Annotated[str | None, names_from(format_names)] = None
    """Store the state in this number format after every token (default: exact)."""
    state_scale: Annotated[str | None, _SCALES] = None
    """What shares an absmax scale (default: a row for integers, 16 neighbours for fp4, none for other floats)."""
    state_step: Annotated[float | None, arg(metavar="FLOAT", help_behavior_hint="")] = None
    """Distance between integer codes, with --state-scale fixed."""
    rounding: Annotated[str | None, _ROUNDINGS] = None
    """How the state is rounded (default: nearest)."""
    residual_bits: OptionalInt = None
    """Bits that error-feedback keeps of the rounding error (default: all)."""
    round_every: Annotated[str | None, arg(metavar="TOKENS", help_behavior_hint="")] = None
    """Tokens between roundings (default: 1), or once: before the first query, as a cached prefix."""

    def precision(self) -> StatePrecision | None:
        """The precision; None where the state stays exact."""
        return next(iter(self.precisions()), None)

    def precisions(self) -> list[StatePrecision]:
        """One for every format."""
        given = {"state_scale": self.state_scale, "state_step": self.state_step, "rounding": self.rounding,
                 "residual_bits": self.residual_bits, "round_every": self.round_every}  # fmt: skip
        found: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        if not self.state_format:
            if found:
                flags = ", ".join("--" + name.replace("_", "-") for name in found)
                raise ValueError(
                    f"{flags}: the state is exact unless --state-format is given. Try --state-format int8."
                )
            return []
        every = self.round_every
        if every is not None:
            if every != "once" and not every.isdecimal():
                raise ValueError(f"--round-every {every}: a number of tokens, or once. Try --round-every 16.")
            found["round_every"] = every if every == "once" else int(every)
        names = {"state_scale": "scale", "state_step": "step", "round_every": "every"}
        fields = {names.get(name, name): value for name, value in found.items()}
        formats = [self.state_format] if isinstance(self.state_format, str) else self.state_format
        return [StatePrecision.of(name, **fields) for name in formats]


@dataclass(kw_only=True)
class SeveralStateFlags(StateFlags):
    """The same, for a command that compares formats."""

    state_format: Annotated[tuple[str, ...] | None, names_from(format_names)] = None  # type: ignore[assignment]
    """Store the state in this number format after every token: it is exact unless this is given. Several formats make
    a table."""


# Flags of a run

Fields = dict[str, Any]  # of a run, by part


@dataclass(kw_only=True)
class RunFlags(SpecFlags):
    """A preset or a file, and what is changed of it; or a task and a model."""

    config: OptionalPath = None
    """Start from this TOML file, with tables task, model and train as in a grid; flags override it."""
    preset: Annotated[str | None, names_from(PRESETS.keys)] = None
    """Start from this published experiment."""
    model: Annotated[str | None, names_from(ARCHITECTURES.names)] = None
    """Architecture, or your own module, my_nets.py:MyModel. Its fields are flags: --model mamba --help."""
    model_args: Annotated[str | None, arg(metavar="JSON", help_behavior_hint="")] = None
    """Fields of the model as a JSON table; for your own module, the arguments of its constructor."""
    task: Annotated[str | None, names_from(TASKS.names)] = None
    """mqar queries every fact, ar one; repeated writes keys several times; template_* has correlated keys. Its
    fields are flags."""
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
    """The command with the fields of the task and the model that the command line names, and those of training."""
    config = typed_value(arguments, "--config")
    start = start_of(typed_value(arguments, "--preset"), Path(config) if config else None)
    kinds = {part: typed_value(arguments, f"--{part}") or start.get(part, {}).get("kind") for part in ("task", "model")}
    specs: dict[str, type[Frozen]] = {
        "task": TASKS.find(kinds["task"] or "mqar"),
        "model": find_architecture(kinds["model"] or "linear_mamba"),
        "train": TrainSpec,
    }
    if ":" in (kinds["model"] or ""):
        from recallscope.architectures.user_module import with_constructor_arguments

        specs["model"] = with_constructor_arguments(find_architecture(kinds["model"]), kinds["model"])
    command = with_spec_flags(base, specs, start=start)
    _refuse_flags_of_others(command, specs["model"], arguments)
    return command


def _refuse_flags_of_others(command: type, model: type[Any], arguments: Sequence[str]) -> None:
    """Say whose field a flag is, if not of the task and the model that were chosen."""
    known = {field.name for field in dataclasses.fields(command)}
    for word in arguments:
        flag = word.partition("=")[0]
        name = flag.removeprefix("--").replace("-", "_")
        owners = field_owners(name) if flag.startswith("--") and name not in known else {}
        for part, kinds in owners.items():
            raise ValueError(f"{flag}: {unknown_field(name, model)} Add --{part} {kinds[0]}.")


# Flags of a recall problem


def problem_flags(*, required: Container[str], several: Container[str] = ()) -> type:
    """The base of a command with one flag per field of a recall problem (`theory.problem.Problem`).

    `required`: sizes that must be given. `several`: sizes that take a list.
    """
    from recallscope.theory.problem import ASKED, SIZES, one_value

    flags: list[tuple[str, Any, Any]] = []
    for name, entry in ASKED.items():
        letter = f"{entry.metadata['letter']}, " if name in SIZES else ""
        options: dict[str, Any] = {"help": f"{letter}{entry.metadata['description']}."}
        kind, default = tuple[int, ...] if name in several else one_value(name), entry.default
        if default is None and name not in required:
            kind, options = kind | None, options | {"help_behavior_hint": ""}
            options |= {"metavar": "INT"} if name in SIZES else {}
        value = dataclasses.field() if name in required else dataclasses.field(default=default)
        flags.append((name, Annotated[kind, arg(**options)], value))
    return dataclasses.make_dataclass("ProblemFlags", flags, kw_only=True)
