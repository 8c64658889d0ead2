"""Flags made from the fields of a recall problem, for `predict` and `size`."""

from __future__ import annotations

import dataclasses
from collections.abc import Container
from typing import Annotated, Any

from tyro.conf import arg

from recallscope.theory.problem import ASKED, SIZES, one_value


def problem_flags(*, required: Container[str], several: Container[str] = ()) -> type:
    """The base of a command with one flag per field of a recall problem (`theory.problem.Problem`).

    `required`: sizes that must be given. `several`: sizes that take a list.
    """
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
