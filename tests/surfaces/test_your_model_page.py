"""docs/YOUR_MODEL.md: its Python trains, is the docstring's, and its commands exist."""

import re
import shlex
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest
from torch import nn

from recallscope.cli.main import VERBS, main
from recallscope.tasks import dataset

PAGE = (Path(__file__).parents[2] / "docs" / "YOUR_MODEL.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)


def test_the_example_trains():
    model = nn.Sequential(nn.Embedding(128, 8), nn.Linear(8, 128))
    steps = []
    optimizer = SimpleNamespace(
        step=lambda: steps.append(float(model[1].weight.grad.norm())), zero_grad=model.zero_grad
    )
    names = {"model": model, "optimizer": optimizer}
    exec(EXAMPLE.replace("num_batches=2000", "num_batches=3"), names)
    assert len(steps) == 3
    assert min(steps) > 0
    assert len(names["test"]) == 1000


def test_the_docstring_has_the_same_example():
    assert textwrap.indent(EXAMPLE, "    ").rstrip() in (dataset.__doc__ or "")


@pytest.mark.parametrize("command", re.findall(r"^\$ (recallscope .*)$", PAGE, flags=re.M))
def test_every_command_names_a_verb_and_its_flags(command, capsys):
    words = shlex.split(command)[1:]
    assert words[0] in VERBS
    with pytest.raises(SystemExit):
        main([*words, "--help"])
    text = capsys.readouterr().out
    for word in words:
        if word.startswith("--"):
            assert word in text, command
