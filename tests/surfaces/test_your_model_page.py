"""docs/YOUR_MODEL.md: its Python trains, and is the docstring's."""

import re
import textwrap
from pathlib import Path
from types import SimpleNamespace

from torch import nn

from recallscope.tasks import dataset

PAGE = (Path(__file__).parents[2] / "docs" / "YOUR_MODEL.md").read_text(encoding="utf-8")
MEASURED, EXAMPLE = re.findall(r"```python\n(.*?)```", PAGE, flags=re.S)


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


def test_the_model_is_measured_from_python(monkeypatch, tmp_path, capsys):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    monkeypatch.chdir(tmp_path)
    exec(MEASURED, {})
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) >= 3
    assert 0 <= float(printed[-2]) < 0.5
    assert not list(tmp_path.iterdir())  # such runs are not kept


def test_the_model_of_the_page_is_the_example():
    (model,) = re.findall(r'```python title="my_memory.py"\n(.*?)```', PAGE, flags=re.S)
    example = Path(__file__).parents[2] / "examples" / "my_memory.py"
    assert example.read_text(encoding="utf-8").endswith(f"\n\n{model}")


def test_the_docstring_has_the_same_example():
    assert textwrap.indent(EXAMPLE, "    ").rstrip() in (dataset.__doc__ or "")
