"""docs/YOUR_MODEL.md: its Python trains, and is the docstring's."""

import re
import textwrap
from pathlib import Path
from types import SimpleNamespace

from torch import nn

from recallscope.tasks import dataset

PAGE = (Path(__file__).parents[2] / "docs" / "YOUR_MODEL.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(import recallscope as rs\nfrom torch.*?)```", PAGE, flags=re.S)


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


def test_the_model_of_the_page_is_the_example():
    (model,) = re.findall(r'```python title="my_memory.py"\n(.*?)```', PAGE, flags=re.S)
    example = Path(__file__).parents[2] / "examples" / "my_memory.py"
    assert example.read_text(encoding="utf-8").endswith(f"\n\n{model}")


def test_the_docstring_has_the_same_example():
    assert textwrap.indent(EXAMPLE, "    ").rstrip() in (dataset.__doc__ or "")
