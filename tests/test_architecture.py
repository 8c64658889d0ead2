"""The rules on how modules depend on each other that neither import-linter nor ruff can check (see pyproject.toml)."""

import ast
import importlib
import os
import pkgutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import recallscope as rs
from recallscope import architectures, tasks
from recallscope.architectures.blocks import Mixer
from recallscope.architectures.layered import RecallLayer
from recallscope.architectures.model import RecallModel
from recallscope.specs import ModelSpec, TaskSpec

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
RUN_NAME = "7dcd81274af31c23ef5fe930"  # also in test_specs.py: a literal that stores depend on


def test_a_fresh_process_loads_no_more_than_it_asks_for() -> None:
    """Names cost no import; one law finds all; the light half and public names load no torch; hashes are the same.

    The light half: the modules listed in the import-linter contract, and every task and architecture spec.
    """
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    (light,) = (found for found in settings["contracts"] if found["name"] == "The light half does not import torch")
    sources = tuple(f"{source}." for source in light["source_modules"])
    names = {".".join(path.relative_to(SRC).with_suffix("").parts) for path in SRC.rglob("*.py")}
    names -= {line.split(" -> ")[0] for line in light["ignore_imports"]}
    code = f"""
import importlib, sys
import recallscope as rs
from recallscope.specs import ARCHITECTURES, TASKS
print(*sorted(ARCHITECTURES.names() + TASKS.names()))
assert not [name for name in sys.modules if name.startswith("recallscope.architectures.")], "names load architectures"
print(rs.find_law("unified").name, len(list(rs.LAWS)), rs.Problem.__name__, rs.Law.__name__)
for name in {sorted(name for name in names if f"{name}.".startswith(sources))}:
    importlib.import_module(name.removesuffix(".__init__"))
    assert "torch" not in sys.modules, f"{{name}} loads torch"
list(ARCHITECTURES), list(TASKS)
assert {{"Mamba2Spec", "HashMemory", "from_pretrained", "RunStore"}} <= set(dir(rs))
rs.Mamba2Spec, rs.RunStore
spec = rs.RunSpec(
    seed=3, model=rs.LinearMambaSpec(state_dim=16, embed_dim=32), task=rs.MQARSpec(num_facts=16, vocab_size=512)
)
print(spec.content_hash())
assert "torch" not in sys.modules, "a spec or a public name loads torch"
"""
    names, laws, run = fresh(code, PYTHONHASHSEED="7").splitlines()
    assert {"mqar", "repeated", "attention", "hybrid", "mamba2", "rwkv7"} <= set(names.split())
    first, count, *others = laws.split()
    assert (first, others) == ("unified", ["Problem", "Law"])
    assert int(count) > 20
    assert run == RUN_NAME
    assert callable(rs.HashMemory)
    assert callable(rs.from_pretrained)


def fresh(code: str, **environment: str) -> str:
    """What a new interpreter prints."""
    here = {"cwd": ROOT, "capture_output": True, "text": True, "env": os.environ | environment}
    done = subprocess.run([sys.executable, "-c", code], check=False, **here)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


HEAVY = {"torch", "pandas", "matplotlib", "jinja2", "ray", "starlette", "transformers", "scipy.stats", "scipy.optimize"}


def test_commands_load_only_what_they_need() -> None:
    """What makes a command start slowly is what it imports; that can be tested on a busy machine, a time cannot.

    Predicting, tables and help load nothing heavy; sizing, planning a sweep and training load no table of runs.
    """
    sizes = "--vocab-size 64 --num-facts 4 --embed-dim 16"
    code = f"""
import sys
from recallscope.cli.main import main
for line in ("predict {sizes} --state-dim 4", "claims", "laws", "sweep --help"):
    try: assert main(line.split()) in (0, None), line
    except SystemExit: pass
    assert not {HEAVY} & sys.modules.keys(), line
for line in ("size {sizes} --target 0.9", "sweep examples/tiny_grid.toml --dry-run"):
    assert main(line.split()) in (0, None), line
import recallscope.train.loop
assert "pandas" not in sys.modules
"""
    fresh(code)


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
