"""Imports point one way, the light half of the package stays light, and a few habits are kept out of src/."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
PACKAGE = SRC / "recallscope"

# A name may import from the stages above its own; names on one line are strangers to one another.
STAGES = (
    ("registry", "lazy", "atomic", "faults", "notebook"),
    ("specs",),
    ("health",),
    ("records", "presets"),
    ("theory", "tasks", "ops"),
    ("architectures",),
    ("circuits", "train", "interp"),
    ("runs",),
    ("analysis",),
    ("measuring",),
    ("probing",),
    ("figures",),
    ("paper",),
    ("answers",),
    ("web",),
    ("cli",),
)
STAGE = {name: number for number, names in enumerate(STAGES) for name in names}
# stages, or single modules of one; every file that registers a task or an architecture is torch-free, too
TORCH_FREE = (
    "registry", "lazy", "faults", "notebook", "specs", "atomic", "health", "records", "presets", "theory", "runs",
    "web", "figures", "tasks.associative_recall", "architectures.dimensions", "architectures.outside",
    "circuits.circuit", "measuring.trainings", "measuring.capacity", "measuring.capacity_question",
    "measuring.measurement", "measuring.beside", "probing.record", "probing.curves", "probing.capacity",
    "probing.page", "probing.words", "answers", "paper.claims", "paper.experiment", "paper.paper_runs",
    "paper.law_table", "paper.report",
)  # fmt: skip
WITH_TORCH = ("runs.worker", "web.inside")
BRINGS_TORCH = ("torch", "safetensors.torch", "transformers", "mambapy", "mamba_ssm")

FORBIDDEN_FILES = ("utils", "common")
FORBIDDEN_MODULES = ("pickle", "dill", "shelve")
FORBIDDEN_NAMES = {
    "torch.load": "weights are safetensors, and unpickling runs whatever the file says",
    "eval": "it runs whatever the text says",
    "exec": "it runs whatever the text says",
    "torch.manual_seed": "randomness has an owner: take a torch.Generator",
    "torch.random.manual_seed": "randomness has an owner: take a torch.Generator",
    "torch.seed": "randomness has an owner: take a torch.Generator",
    "torch.cuda.manual_seed": "randomness has an owner: take a torch.Generator",
    "torch.cuda.manual_seed_all": "randomness has an owner: take a torch.Generator",
    "numpy.random.seed": "randomness has an owner: take a generator",
    "random.seed": "randomness has an owner: take a generator",
}
FORBIDDEN_FLAGS = ("shell", "allow_pickle")


class Import(NamedTuple):
    """One imported dotted name: `from a.b import c` is a.b.c, as c may be a module."""

    name: str
    line: int
    when_loaded: bool  # False inside a function: loading the module does not run it


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    return {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(tree: ast.Module, module: str, *, is_package: bool) -> Iterator[Import]:
    """Every import of a module, at any depth, relative ones spelled out."""

    def walk(node: ast.AST, when_loaded: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield Import(alias.name, child.lineno, when_loaded)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    home = module.split(".")
                    home = home[: len(home) - child.level + (1 if is_package else 0)]
                    base = ".".join([*home, *([child.module] if child.module else [])])
                for alias in child.names:
                    yield Import(f"{base}.{alias.name}", child.lineno, when_loaded)
            else:
                lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
                if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                    continue  # names for the type checker: nothing is imported
                yield from walk(child, when_loaded and not lazy)

    return walk(tree, True)


def imports_of(module: str, path: Path) -> list[Import]:
    return list(imports(parse(path), module, is_package=path.name == "__init__.py"))


def stage_name(dotted: str) -> str:
    """recallscope.theory.laws -> theory; the root of the package is the empty name."""
    return dotted.split(".")[1] if "." in dotted else ""


def upward(module: str, found: list[Import]) -> list[str]:
    """The imports of a module that do not point to an earlier stage."""
    here = stage_name(module)
    faults = []
    for name, line, _ in found:
        if not (name == "recallscope" or name.startswith("recallscope.")):
            continue
        there = stage_name(name)
        if here == "" or here == there or there == "__version__":
            continue  # the root re-exports; a package may use itself
        if there not in STAGE:
            faults.append(f"{module}:{line} imports {name}: import a name from its home, not from the root")
        elif STAGE[there] >= STAGE[here]:
            faults.append(f"{module}:{line} imports {name}: {there} does not stand before {here}")
    return faults


def brings_torch(name: str) -> bool:
    return any(name == heavy or name.startswith(heavy + ".") for heavy in BRINGS_TORCH)


def torch_free_modules() -> list[str]:
    """By the list above, and by what registers a kind."""
    found = []
    for name, path in modules().items():
        short = name.removeprefix("recallscope.")
        listed = {stage_name(name), short} & {*TORCH_FREE} and short not in WITH_TORCH
        if listed or re.search(r"^@(task|architecture)\(", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.append(name)
    return found


def dotted_name(node: ast.expr) -> str:
    """a.b.c as text; empty for anything else, such as the method of a call's result."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def forbidden(tree: ast.Module) -> list[str]:
    """Names, modules and flags that have no place in src/, seen through any alias."""
    meaning: dict[str, str] = {}
    faults = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.split(".")[0]
                meaning[alias.asname or first] = alias.name if alias.asname else first
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                meaning[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for alias_of in meaning.values():
        if alias_of.split(".")[0] in FORBIDDEN_MODULES:
            faults.append(f"imports {alias_of}")
        if alias_of in FORBIDDEN_NAMES:
            faults.append(f"imports {alias_of}: {FORBIDDEN_NAMES[alias_of]}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            first, _, rest = dotted_name(node).partition(".")
            full = meaning.get(first, first) + (f".{rest}" if rest else "")
            if full in FORBIDDEN_NAMES:
                faults.append(f"line {node.lineno} uses {full}: {FORBIDDEN_NAMES[full]}")
        elif isinstance(node, ast.keyword) and node.arg in FORBIDDEN_FLAGS and ast.unparse(node.value) != "False":
            faults.append(f"line {node.value.lineno} passes {node.arg}={ast.unparse(node.value)}")
    return faults


def test_every_module_has_a_place_in_the_order() -> None:
    names = {stage_name(name) for name in modules()} - {"", "__main__"}
    assert names <= set(STAGE), f"give these a stage: {sorted(names - set(STAGE))}"


@pytest.mark.parametrize("module", sorted(modules()))
def test_imports_point_to_earlier_stages(module: str) -> None:
    assert upward(module, imports_of(module, modules()[module])) == []


@pytest.mark.parametrize("module", torch_free_modules())
def test_the_light_half_never_names_torch(module: str) -> None:
    found = imports_of(module, modules()[module])
    assert [f"line {item.line}: {item.name}" for item in found if brings_torch(item.name)] == []


@pytest.mark.parametrize("module", torch_free_modules())
def test_the_light_half_does_not_load_torch_through_others(module: str) -> None:
    """Follow what loading the module runs, parents' __init__ included."""
    paths = modules()
    seen: set[str] = set()
    todo = [(module, module)]
    while todo:
        name, trail = todo.pop()
        while name not in paths and "." in name:  # a function or class: its module is what loads
            name = name.rpartition(".")[0]
        if name in seen or name not in paths:
            continue
        seen.add(name)
        todo.append((name.rpartition(".")[0], f"{trail} -> {name}"))
        for item in imports_of(name, paths[name]):
            if item.when_loaded:
                assert not brings_torch(item.name), f"{trail} -> {name} loads {item.name}"
                todo.append((item.name, f"{trail} -> {name}"))


def test_the_light_half_runs_without_torch() -> None:
    """What the trees say, asked of the interpreter itself."""
    code = "import importlib, sys\n"
    code += f"for name in {torch_free_modules()!r}:\n    importlib.import_module(name)\n"
    code += "assert 'torch' not in sys.modules, 'torch was loaded'\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_only_the_surfaces_know_the_paper() -> None:
    """What is general stands unchanged if the paper is another one; presets find the experiments by name."""
    for module, path in modules().items():
        if stage_name(module) not in ("paper", "cli", "web"):
            assert [item.name for item in imports_of(module, path) if stage_name(item.name) == "paper"] == [], module


def test_every_module_is_named_after_its_idea() -> None:
    assert [str(path) for path in PACKAGE.rglob("*") if path.stem in FORBIDDEN_FILES] == []


@pytest.mark.parametrize("module", sorted(modules()))
def test_no_pickle_no_eval_no_shell_no_global_seed(module: str) -> None:
    assert forbidden(parse(modules()[module])) == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import torch\ntorch.load('x')",
        "from torch import load as read\nread('x')",
        "eval('1')",
        "exec('1')",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "import torch as t\nt.manual_seed(0)",
        "import numpy as np\nnp.random.seed(0)",
        "from numpy.random import seed",
        "import random\nrandom.seed(0)",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
    ],
)
def test_the_watch_sees_what_it_should(text: str) -> None:
    assert forbidden(ast.parse(text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "model.eval()",
        "generator.manual_seed(3)",
        "import torch\ng = torch.Generator().manual_seed(3)",
        "import subprocess\nsubprocess.run(['ls'], shell=False)",
        "rng.seed",
    ],
)
def test_the_watch_lets_honest_code_pass(text: str) -> None:
    assert forbidden(ast.parse(text)) == []


@pytest.mark.parametrize(
    ("module", "text", "allowed"),
    [
        ("recallscope.theory.laws", "from recallscope.specs import TaskSpec", True),
        ("recallscope.theory.laws", "from recallscope import specs", True),
        ("recallscope.theory.laws", "from recallscope.theory.extremes import typical_max", True),
        ("recallscope.theory.laws", "from .extremes import typical_max", True),
        ("recallscope.theory.laws", "from ..tasks import mqar", False),
        ("recallscope.theory.laws", "import recallscope.tasks", False),
        ("recallscope.theory.laws", "from recallscope import unified_law", False),
        ("recallscope.tasks.mqar", "def f():\n    from recallscope.architectures import model", False),
        ("recallscope.specs", "if TYPE_CHECKING:\n    from recallscope.tasks.batch import Batch", True),
        ("recallscope.records", "from recallscope.specs import RunSpec", True),
        ("recallscope.specs", "from recallscope.records import RunRecord", False),
        ("recallscope.cli.main", "from recallscope.analysis import collapse", True),
        ("recallscope.paper.report", "from recallscope.figures import save_figure", True),
        ("recallscope.figures.mechanism", "from recallscope.paper.claims import CLAIMS", False),
        ("recallscope.runs.grid", "from recallscope.presets import PRESETS", True),
        ("recallscope.cli.explore", "from recallscope.web.server import make_app", True),
        ("recallscope.web.server", "from recallscope.cli.predict import Predict", False),
    ],
)
def test_the_order_is_told_from_its_breach(module: str, text: str, allowed: bool) -> None:
    found = list(imports(ast.parse(text), module, is_package=False))
    assert (upward(module, found) == []) == allowed
