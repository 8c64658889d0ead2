"""A page for every package with public names, and a check that each name has a docstring."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import recallscope


def api_pages() -> Iterator[tuple[str, str]]:
    """Path and Markdown of every page, that of what a model can offer included; mkdocstrings fills the `:::` lines from the sources."""
    faults = []
    written: dict[str, str] = {}  # where the sources define a name, and the package whose page has it
    for package in reversed(packages()):  # the root last: it names what the others describe
        names = public_names(package)
        faults += [] if inspect.getdoc(package) else [package.__name__]
        faults += [
            f"{package.__name__}.{fault}" for name in names for fault in undocumented(name, getattr(package, name))
        ]
        here = {home(package, name): name for name in names if has_source(getattr(package, name))}
        elsewhere = [
            f"[`{name}`][{place}]"
            for place, name in here.items()
            if written.setdefault(place, package.__name__) != package.__name__
        ]
        plain = [f"`{name}`" for name in names if not has_source(getattr(package, name))]
        text = [f"# {package.__name__}", inspect.getdoc(package) or ""]
        text += [f"Described on the pages of their packages: {', '.join(elsewhere)}."] if elsewhere else []
        text += [f"Constants and types: {', '.join(plain)}."] if plain else []
        text += [f"::: {place}" for place in here if written[place] == package.__name__]
        yield f"api/{package.__name__.removeprefix('recallscope.')}.md", "\n\n".join(text)
    yield "api/capabilities.md", "# Capabilities of a model\n\n::: recallscope.architectures.capabilities"
    if faults:
        raise ValueError(f"public, and without a docstring: {', '.join(faults)}.")


def packages() -> list[ModuleType]:
    """The root and every package below it that re-exports names."""
    inner = [one.name for one in pkgutil.iter_modules(recallscope.__path__, "recallscope.") if one.ispkg]
    found = [recallscope, *(importlib.import_module(name) for name in inner)]
    return [package for package in found if public_names(package)]


def public_names(package: ModuleType) -> list[str]:
    """What a package re-exports: those it loads when first used, or `__all__`."""
    names = vars(package).get("_HOMES") or vars(package).get("__all__") or ()
    return sorted((name for name in names if not name.startswith("__")), key=str.lower)


def has_source(thing: Any) -> bool:
    """Whether it is a class or a function, which have a docstring of their own."""
    return inspect.isclass(thing) or inspect.isroutine(thing)


def home(package: ModuleType, name: str) -> str:
    """The dotted name under which the sources define it."""
    thing = getattr(package, name)
    return f"{thing.__module__}.{thing.__qualname__}"


def undocumented(name: str, thing: Any) -> Iterator[str]:
    """The name itself, and public methods of a class, that have no docstring."""
    if not has_source(thing):
        return
    if not vars(thing).get("__doc__", thing.__doc__):
        yield name
    for part, value in vars(thing).items() if inspect.isclass(thing) else ():
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        ours = inspect.isfunction(function) and function.__module__ == thing.__module__
        if ours and not part.startswith("_") and not function.__doc__:
            yield f"{name}.{part}"
