"""A page of all commands: what `recallscope COMMAND --help` prints."""

from __future__ import annotations

import contextlib
import io
import os
import re

from recallscope.cli.main import COMMANDS, main, overview

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def command_page() -> str:
    """Overview first, then a section per command."""
    os.environ["COLUMNS"] = "90"
    text = ["# Commands", f"```text\n{overview()}\n```"]
    for command, (_, says) in COMMANDS.items():
        text += [
            f"## {command}",
            f"{says[0].upper()}{says[1:]}{'' if says.endswith('?') else '.'}",
            f"```text\n{_help(command)}\n```",
        ]
    return "\n\n".join(text)


def _help(command: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([command, "--help"])
    return COLOURS.sub("", printed.getvalue()).strip()
