"""The rules on how modules depend on each other that neither import-linter nor ruff can check (see pyproject.toml)."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from recallscope import architectures, tasks
from recallscope.architectures.blocks import Mixer
from recallscope.architectures.layered import RecallLayer
from recallscope.architectures.model import RecallModel
from recallscope.specs import ModelSpec, TaskSpec

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"


def test_the_light_half_loads_without_torch() -> None:
    """Loads the modules listed in the import-linter contract, and every task and architecture spec."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (light,) = (found for found in settings["contracts"] if found["name"] == "The light half does not import torch")
    sources = tuple(f"{source}." for source in light["source_modules"])
    names = {".".join(path.relative_to(SRC).with_suffix("").parts) for path in SRC.rglob("*.py")}
    names -= {line.split(" -> ")[0] for line in light["ignore_imports"]}
    code = f"""
import importlib, sys
from recallscope.specs import ARCHITECTURES, TASKS
for name in {sorted(name for name in names if f"{name}.".startswith(sources))}:
    importlib.import_module(name.removesuffix(".__init__"))
    assert "torch" not in sys.modules, f"{{name}} loads torch"
print(*ARCHITECTURES, *TASKS)
assert "torch" not in sys.modules, "a task or architecture spec loads torch"
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def subclasses(root: type) -> Iterator[str]:
    for child in root.__subclasses__():
        yield child.__name__
        yield from subclasses(child)


def kind_checks(tree: ast.Module, kinds: set[str]) -> Iterator[int]:
    """Lines that test for one of the given classes, or compare `.kind` with a string."""

    def names(*nodes: ast.AST) -> set[str]:
        parts = [part for node in nodes for part in ast.walk(node)]
        return {getattr(part, "id", getattr(part, "attr", "")) for part in parts}

    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, asked]) if names(asked) & kinds:
                yield node.lineno
            case ast.MatchClass(cls=asked) if names(asked) & kinds:
                yield asked.lineno
            case ast.Match(subject=ast.Attribute(attr="kind")):
                yield node.lineno
            case ast.Compare(left=left, comparators=others):
                sides = [left, *others]
                of_kind = any(isinstance(side, ast.Attribute) and side.attr == "kind" for side in sides)
                strings = any(isinstance(p, ast.Constant) and isinstance(p.value, str) for p in ast.walk(node))
                if (of_kind and strings) or ("type" in names(*sides) and names(*sides) & kinds):
                    yield node.lineno


def test_no_code_asks_which_kind_a_model_or_task_is() -> None:
    """Code asks for a capability or a property of the spec; only `architectures`, specs and registry know kinds."""
    for package in (architectures, tasks):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    kinds = {name for root in (ModelSpec, TaskSpec, RecallModel, RecallLayer, Mixer) for name in subclasses(root)}
    for caught in ("isinstance(x, (int, MambaSpec))", "type(x) is LinearMamba", "spec.kind in ('mamba', 'mamba2')"):
        assert list(kind_checks(ast.parse(caught), kinds)), caught
    assert not list(kind_checks(ast.parse("isinstance(x, RecallModel) and spec.kind == other.kind"), kinds))
    package = SRC / "recallscope"
    exempt = {package / "registry.py", package / "specs.py", *(package / "architectures").iterdir()}
    found = [
        f"{path}:{line}"
        for path in {*package.rglob("*.py")} - exempt
        for line in kind_checks(ast.parse(path.read_text(encoding="utf-8")), kinds)
    ]
    assert found == []
