"""Advice in messages and help works when it is followed: the commands and flags they name are there."""

import ast
import dataclasses
import re
from pathlib import Path
from typing import Annotated, get_args, get_origin, get_type_hints

from recallscope.cli import main
from recallscope.cli.main import COMMANDS, command_class
from recallscope.cli.store import Store
from recallscope.specs import ARCHITECTURES, TASKS

PACKAGE = Path(main.__file__).parents[1]
COMMAND = re.compile(r"recallscope ([a-z]+)((?: +[^\s.;,:()'\"`]+)*)")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
OTHERS = {"ray": {"--head", "--node-ip-address"}}  # flags of other programs


def texts(path):
    """Every text of a module, with a word for what is filled in."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(p.value) if isinstance(p, ast.Constant) else "WORD" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def flags(command):
    found = {"--help"}
    for name, hint in get_type_hints(command, include_extras=True).items():
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        if name not in {field.name for field in dataclasses.fields(command)}:
            continue
        names = [getattr(mark, "name", None) for mark in marks if getattr(mark, "name", None)]
        found |= {f"--{(names or [name])[0].replace('_', '-')}"}
        found |= {alias for mark in marks for alias in (getattr(mark, "aliases", None) or ())}
    return found


STORE = {
    get_args(part)[1].name: get_args(part)[0]
    for part in get_args(get_args(get_type_hints(Store, include_extras=True)["action"])[0])
}
KINDS = [["--task", name] for name in TASKS.names()] + [["--model", name] for name in ARCHITECTURES.names()]
KINDS += [["--mixer", "torch.nn:Identity"]]
FLAGS = {command: set().union(*(flags(command_class(command, kind)) for kind in KINDS)) for command in COMMANDS} | {
    f"store {action}": flags(kind) for action, kind in STORE.items()
}
EVERY = set().union(*FLAGS.values(), *OTHERS.values(), {"--version", "--list"})


def test_commands_and_flags_in_texts_exist():
    for text in (text for path in sorted(PACKAGE.rglob("*.py")) for text in texts(path)):
        for command, rest in COMMAND.findall(" ".join(text.split())):
            if command in COMMANDS:
                arguments = rest.split()
                action = f"store {arguments[0]}" if command == "store" and arguments else ""
                known = FLAGS.get(action, FLAGS[command])
                wrong = [flag for flag in FLAG.findall(rest) if flag not in known]
                assert not wrong, (text, wrong)
        assert not set(FLAG.findall(text)) - EVERY, text
