"""README's promises: the first screen's output is real, its Python runs, its commands exist."""

import re
import shlex
from pathlib import Path

import pytest

from recallscope.cli.main import VERBS, main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.S)
COMMANDS = [
    line[2:].split("#")[0].strip()
    for language, text in BLOCKS
    if language == "console"
    for line in text.splitlines()
    if line.startswith("$ recallscope")
]


def test_the_first_screen_is_what_the_command_prints(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    language, text = BLOCKS[0]
    assert language == "console"
    command, *printed = text.strip().splitlines()
    assert main(shlex.split(command[2:])[1:]) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.strip().splitlines()] == printed


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_names_a_verb_and_its_flags(command, capsys):
    words = shlex.split(command)[1:]
    assert words[0] in VERBS
    with pytest.raises(SystemExit):
        main([words[0], *(["list"] if words[0] == "store" else []), "--help"])
    text = capsys.readouterr().out
    for word in words:
        if word.startswith("--"):
            assert word in text, command


@pytest.mark.parametrize("number", [n for n, (language, _) in enumerate(BLOCKS) if language == "python"])
def test_python_runs_as_printed(number, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    names = {}
    exec(BLOCKS[number][1], names)
    assert "value" in capsys.readouterr().out.lower() or names["trained"].record.test_accuracy > 0.5
