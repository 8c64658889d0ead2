"""What README and docs/ print is true: console blocks are run, their output is compared, their Python is run.

A page is run in a folder of its own, with `examples` and `results` of the repository in it, from the top down. A block
with a title is a file of that name. `console` blocks are run; where a block prints something, it must be what the
command prints, `...` standing for any lines, or for any text within one. A block after the comment `<!-- slow -->` is
run with the slow tests only. Blocks of other languages (bash, text, toml) are for readers with clusters and checkpoints
of their own.
"""

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import pytest

from closeness import DECIMAL, assert_same_text
from recallscope.cli.main import COMMANDS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"(<!-- slow -->\n+)?^```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
OWN_TEST = {"docs/YOUR_MODEL.md"}  # its Python needs a model of the reader's: test_your_model_page.py gives it one


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    text: str
    slow: bool
    title: str | None

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """Each command of a console block, and the lines printed under it."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            else:
                found[-1][1].append(line)
        return found


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [Block(language, body, bool(slow), title) for slow, language, title, body in FENCE.findall(text)]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def to_run(page: Path) -> list[Block]:
    languages = ("console",) if name(page) in OWN_TEST else ("console", "python")
    return [block for block in blocks(page) if block.language in languages or block.title]


RUN = [page for page in PAGES if to_run(page)]


def link_or_copy(source, target):
    """A hard link: files of a store are replaced, never changed. Logs, which are appended to, are copied."""
    if not source.endswith(".jsonl"):
        with contextlib.suppress(OSError):  # another file system
            return os.link(source, target)
    return shutil.copy2(source, target)


@pytest.fixture
def folder(page, tmp_path, monkeypatch):
    """A reader's folder: a checkout without its sources."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    if "results/" in page.read_text(encoding="utf-8"):
        shutil.copytree(ROOT / "results", tmp_path / "results", copy_function=link_or_copy)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    return tmp_path


@pytest.mark.parametrize("page", [page for page in RUN if any(not block.slow for block in to_run(page))], ids=name)
def test_the_quick_blocks_of_a_page_run(page, folder, run, capsys):
    run_page(page, [block for block in to_run(page) if not block.slow], run, capsys)


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in RUN if any(block.slow for block in to_run(page))], ids=name)
def test_all_blocks_of_a_page_run(page, folder, run, capsys):
    run_page(page, to_run(page), run, capsys)


def run_page(page, chosen, run, capsys):
    names: dict[str, object] = {}
    for block in chosen:
        if block.title:
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            exec(compile(block.text, name(page), "exec"), names)
            capsys.readouterr()
        else:
            for command, printed in block.commands:
                out = output_of(command, run)
                if printed:
                    assert_printed(printed, out.strip().splitlines(), command)


def output_of(command: str, run) -> str:
    arguments = shlex.split(command, comments=True)
    if arguments[0] == "make":  # what it does is tested elsewhere: the target has to be there
        assert re.search(rf"^{arguments[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
        return ""
    if arguments[:2] == ["recallscope", "explore"]:
        return served(arguments[1:])
    if arguments[0] == "recallscope":  # here, where torch is loaded already
        code, out, err = run(*arguments[1:])
        assert code in (0, None), f"$ {command}\n{out}\n{err}"
        return out
    python = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-c", command],
        env=os.environ | {"PATH": f"{python}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def served(arguments: list[str]) -> str:
    """What a command prints that serves until it is stopped: started, its page asked for once, and stopped."""
    server = subprocess.Popen(
        [sys.executable, "-m", "recallscope.cli.main", *arguments, "--no-browser"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        address = server.stdout.readline()
        with urlopen(address.strip(), timeout=60) as page:
            assert b"recallscope" in page.read()
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=60)
    assert server.returncode == 0
    return address


def assert_printed(page: list[str], command: list[str], what: str) -> None:
    """Line by line, spaces at the ends aside; `...` stands for any lines, or within a line for any text. The last digit
    of a decimal may be one off."""
    pattern = "".join(
        "(?:.*\n)*?" if line.strip() == "..." else re.escape(line.rstrip()).replace(r"\.\.\.", ".*") + "\n"
        for line in page
    )
    pattern = re.sub(r"\d+\\\.\d+", lambda _: r"(\d+\.\d+)", pattern)
    matched = re.fullmatch(pattern, "".join(f"{line.rstrip()}\n" for line in command))
    difference = f"$ {what}\nprints\n" + "\n".join(command) + "\nand the page says\n" + "\n".join(page)
    assert matched, difference
    assert_same_text(" ".join(matched.groups()), " ".join(DECIMAL.findall("\n".join(page))), difference)


SLOW = [
    command
    for page in RUN
    for block in to_run(page)
    if block.slow and block.language == "console"
    for command, _ in block.commands
    if command.startswith("recallscope")
]


@pytest.mark.parametrize("command", dict.fromkeys(SLOW))
def test_slow_commands_name_a_command_and_its_flags(command, run):
    """The others are run."""
    command, *arguments = shlex.split(command, comments=True)[1:]
    assert command in COMMANDS
    text = run(
        command, *(arguments if command == "measure" else arguments[:1] if command == "store" else []), "--help"
    )[1]
    assert [word for word in arguments if word.startswith("--") and word not in text] == []


def test_console_blocks_begin_with_a_command():
    for block in (block for page in PAGES for block in blocks(page)):
        if block.language == "console":
            assert block.text.startswith("$ "), block.text
