"""Nothing asks which kind a model or a task is: code asks for a capability, or for a property of the spec."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "recallscope"
ROOTS = {"ModelSpec", "TaskSpec", "RecallModel", "RecallLayer", "Mixer"}  # asking for these is not asking for a kind
EXEMPT = ("architectures/", "registry.py", "specs.py")


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def last_name(node: ast.expr) -> str:
    """`LinearSpec` of LinearSpec, linear.LinearSpec and LinearSpec[...]; empty for anything else."""
    if isinstance(node, ast.Subscript):
        return last_name(node.value)
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def kinds() -> frozenset[str]:
    """Every class of the package that inherits from one of the roots, however far."""
    bases = {
        node.name: {last_name(base) for base in node.bases}
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef)
    }
    found: set[str] = set()
    while True:
        more = {name for name, above in bases.items() if above & (ROOTS | found)} - found - ROOTS
        if not more:
            return frozenset(found)
        found |= more


KINDS = kinds()


def named(node: ast.expr) -> Iterator[str]:
    """The classes in the second argument of isinstance: one, several in a tuple, or joined by |."""
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        for item in node.elts:
            yield from named(item)
    elif isinstance(node, ast.BinOp):
        yield from named(node.left)
        yield from named(node.right)
    else:
        yield last_name(node)


def is_kind(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "kind"


def texts(node: ast.AST) -> bool:
    """Whether it is a string, or a collection of them."""
    items = node.elts if isinstance(node, ast.Tuple | ast.List | ast.Set) else [node]
    return any(isinstance(item, ast.Constant) and isinstance(item.value, str) for item in items)


def asks(tree: ast.Module) -> list[str]:
    """Every place that asks for a kind, as "line: how"."""
    meaning = {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    def kinds_in(node: ast.expr) -> list[str]:
        return [name for name in named(node) if meaning.get(name, name) in KINDS]

    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in ("isinstance", "issubclass") and len(node.args) == 2:
            found += [f"{node.lineno}: {last_name(node.func)} {name}" for name in kinds_in(node.args[1])]
        elif isinstance(node, ast.MatchClass):
            found += [f"{node.cls.lineno}: case {name}()" for name in kinds_in(node.cls)]
        elif isinstance(node, ast.Match) and is_kind(node.subject):
            found.append(f"{node.lineno}: match on .kind")
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if any(map(is_kind, sides)) and any(map(texts, sides)):
                found.append(f"{node.lineno}: .kind compared with a text")
            if any(isinstance(side, ast.Call) and last_name(side.func) == "type" for side in sides):
                found += [f"{node.lineno}: type() compared with {name}" for side in sides for name in kinds_in(side)]
    return found


def checked_files() -> list[str]:
    files = (path.relative_to(PACKAGE).as_posix() for path in sorted(PACKAGE.rglob("*.py")))
    return [file for file in files if not file.startswith(EXEMPT)]


@pytest.mark.parametrize("file", checked_files())
def test_no_file_asks_which_kind_a_model_or_task_is(file: str) -> None:
    assert asks(parse(PACKAGE / file)) == []


def test_the_watch_knows_the_kinds() -> None:
    ours = {"LinearSpec", "Full2Spec", "OutsideSpec", "MQARSpec", "AssociativeRecall", "LinearMamba", "FullMixer"}
    assert ours | {"MultiHeadLayer", "LayeredModel", "OuterProductModel", "OutsideModel"} <= KINDS
    assert not KINDS & (ROOTS | {"TrainSpec", "RunSpec", "Operators"})


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(x, LinearSpec)",
        "isinstance(x, (int, FullSpec))",
        "isinstance(x, FullMamba | Full2Mamba)",
        "from a import FullMamba as Old\nisinstance(x, Old)",
        "isinstance(x, linear_model.LinearLayer)",
        "issubclass(type(x), MQARSpec)",
        "type(x) is LinearMamba",
        "match x:\n    case LinearLayer():\n        pass",
        "match x:\n    case [LinearSpec(), *_]:\n        pass",
        "match task.kind:\n    case 'ar':\n        pass",
        "task.kind == 'ar'",
        "'full' != run.model.kind",
        "spec.kind in ('full', 'full2')",
    ],
)
def test_the_watch_sees_what_it_should(text: str) -> None:
    assert asks(ast.parse(text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(x, RecallModel)",
        "isinstance(x, TaskSpec)",
        "isinstance(x, dict)",
        "model.capability(HasState)",
        "spec.kind == other.kind",
        "print(spec.kind)",
        "kind == 'ar'",
    ],
)
def test_the_watch_lets_honest_code_pass(text: str) -> None:
    assert asks(ast.parse(text)) == []
