"""Flags made from specs: every field of a spec is a flag of the same name, with its description as help."""

from __future__ import annotations

import dataclasses
import json
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from tyro.conf import arg

from recallscope.cli.output import print_json as print_json  # draw, report and reproduce import it from here
from recallscope.specs import Frozen

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
