"""Registries: tasks, architectures, laws, circuits and experiments by name, open to other packages and to single files.

recallscope's own entries are a table of `name: "module:attribute"`; a module is imported when its entry is first asked
for, so that a list of names costs no import. Plug-ins are the entry points of installed packages (groups
`recallscope.tasks`, `recallscope.architectures`, `recallscope.laws`) and the modules or files listed in the environment
variable RECALLSCOPE_PLUGINS, separated as in PATH. A plug-in adds an entry by a decorator, `@architecture("mine")`, or,
for laws, by ending with a list `LAWS`.
"""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from importlib.machinery import SourceFileLoader
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

T = TypeVar("T")
PLUGINS = "RECALLSCOPE_PLUGINS"
GROUPS = ("recallscope.tasks", "recallscope.architectures", "recallscope.laws")


class UnknownNameError(ValueError):
    """A name that no registry entry has; the message offers the nearest ones."""


def suggestion(name: object, known: Iterable[str]) -> str:
    """The second sentence about a name that is not among the known ones: the nearest, or all that there are."""
    known = list(known)
    near = difflib.get_close_matches(str(name), known, n=3, cutoff=0.45)
    return f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(known)}."


class Registry(Generic[T]):
    """Entries of one sort by name: recallscope's own, `name: "module:attribute"`, then those of plug-ins."""

    def __init__(self, noun: str, own: Mapping[str, str]) -> None:
        self.noun, self.own = noun, own
        self._entries: dict[str, T] = {}
        self._origins = {name: reference.partition(":")[0] for name, reference in own.items()}

    def add(self, name: str, entry: T, *, module: str) -> None:
        """Register an entry; a name has one owner, but a module that is imported again may replace its own."""
        origin = import_reference(module)
        if self._origins.setdefault(name, origin) != origin:
            raise ValueError(
                f"{self.noun} {name!r} is registered twice: by {self._origins[name]} and by {origin}. Rename one."
            )
        self._entries[name] = entry

    def load(self) -> None:
        """Register what plug-ins have."""
        load_plugins()

    def find(self, name: str) -> T:
        """The entry of that name, or an UnknownNameError that offers the nearest ones."""
        if name not in self._entries and name in self.own:
            module, _, attribute = self.own[name].partition(":")
            self._entries[name] = getattr(importlib.import_module(module), attribute)
        if name not in self._entries:
            self.load()
        if name not in self._entries:
            raise UnknownNameError(f"{self.noun}={name!r} is not registered. {suggestion(name, self.names())}")
        return self._entries[name]

    def origin(self, name: str) -> str | None:
        """What another process must import to have this entry; None for recallscope's own."""
        origin = self._origins.get(name)
        return None if origin is None or origin.startswith("recallscope.") else origin

    def names(self) -> list[str]:
        """All names: recallscope's own in the order of the table, then those of plug-ins."""
        self.load()
        return list(dict.fromkeys((*self.own, *self._entries)))

    def __iter__(self) -> Iterator[T]:
        return (self.find(name) for name in self.names())

    def __contains__(self, name: object) -> bool:
        return name in self.names()


_loaded: dict[str, ModuleType | None] = {}  # plug-ins by what they are named with; None while one is imported


def load_plugins() -> list[ModuleType]:
    """All plug-ins: entry points of installed packages, then those named in the environment. Each is imported once."""
    if "entry points" not in _loaded:
        _loaded["entry points"] = None
        installed = entry_points()  # reads the metadata of every installed package: once
        for point in (point for group in GROUPS for point in installed.select(group=group)):
            point.load()
            _loaded[point.value] = sys.modules[point.module]
    for reference in filter(None, os.environ.get(PLUGINS, "").split(os.pathsep)):
        if reference not in _loaded:
            _loaded[reference] = None
            _loaded[reference] = import_from(reference)
    return [module for module in _loaded.values() if module]


def import_from(reference: str) -> ModuleType:
    """Import a module by its name, `my_package.my_nets`, or by its file, `path/to/my_nets.py`.

    A file is imported once per path and content under a name of its own, so that two files of one name do not clash.
    Names are looked for in the current folder, too, as `python -m` does.
    """
    if reference.endswith(".py"):
        return _import_file(Path(reference))
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)
    try:
        return importlib.import_module(reference)
    except ModuleNotFoundError as error:
        if error.name is not None and (reference == error.name or reference.startswith(f"{error.name}.")):
            raise ValueError(
                f"no module {reference!r}, neither installed nor in {here}. Name a module, "
                f"my_package.my_nets, or a file, path/to/my_nets.py."
            ) from error
        raise


def source_digest(path: Path) -> str:
    """16 hex digits of SHA-256 over a file's bytes."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def import_reference(module: str) -> str:
    """What `import_from` needs in another process to import this module again: its name, or its file."""
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if file and (module == "__main__" or module.startswith("_recallscope_file_")):
        return str(Path(file).resolve())
    return module


class _SourceLoader(SourceFileLoader):
    """Reads the source every time: bytecode of a file that was edited twice in a second would be that of before."""

    def path_stats(self, path: Any) -> Any:
        """Without these no bytecode is looked for, and none is written."""
        raise OSError(path)


def _import_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ValueError(f"no file {path} (from {os.getcwd()}). Name a Python file, path/to/my_nets.py.")
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    if main and Path(main).resolve() == path.resolve():
        return sys.modules["__main__"]
    name = f"_recallscope_file_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    digest = source_digest(path)
    if name in sys.modules and getattr(sys.modules[name], "__recallscope_digest__", None) == digest:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path, loader=_SourceLoader(name, str(path)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    module.__recallscope_digest__ = digest  # type: ignore[attr-defined]
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
