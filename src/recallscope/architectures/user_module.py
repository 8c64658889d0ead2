"""A user's own `nn.Module` as an architecture: named by where it is, `my_nets:MyModel` or `path/to/my_nets.py:MyModel`.

The contract is the least possible: the class is called with `vocab_size` and the given arguments, and `forward(tokens)`
returns logits `batch L V`. A run's identity holds the name, the arguments and a digest of the source file, so that a
changed file is another run. No torch is needed to read such a spec, nor the file: only to build the model.
"""

from __future__ import annotations

import ast
import importlib.util
import os
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, create_model, field_validator, model_validator

from recallscope.registry import source_digest
from recallscope.specs import ModelSpec, Size, canonical_json

RESERVED = ("kind", "digest")
MIXER = "mixer:"  # before the place of a bare mixer, which is wrapped


class ModuleSpec(ModelSpec):
    """A module of the user's own; fields beside these two are the arguments of its constructor."""

    model_config = ConfigDict(extra="allow")
    model = "recallscope.architectures.user_module_model:UserModule"

    FOLLOWING = ("kind", "digest")
    kind: str = Field(description="where the class is: my_nets:MyModel, or path/to/my_nets.py:MyModel")
    digest: str = Field(description="of the source file; taken from the file if it is left out")

    @field_validator("kind")
    @classmethod
    def _kind_is_the_registered_one(cls, kind: str) -> str:
        """In the place of the registered name: a module or file, and a class in it."""
        place, _, name = kind.rpartition(":")
        if not place or not name.isidentifier():
            raise ValueError(
                f"model={kind!r} names no class: write a module and a class, my_nets:MyModel, or a file and a class, "
                f"path/to/my_nets.py:MyModel."
            )
        return f"{os.path.normpath(place)}:{name}" if place.endswith(".py") else kind

    @model_validator(mode="before")
    @classmethod
    def _digest_of_the_source(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("digest") is None and isinstance(data.get("kind"), str):
            place = place_of(data["kind"])
            return {**data, "digest": source_digest(source_file(place))} if place else data
        return data

    @model_validator(mode="after")
    def _arguments_are_plain_data(self) -> ModuleSpec:
        if "vocab_size" in self.arguments:
            raise ValueError("vocab_size is given by the task and handed to the model's constructor. Leave it out.")
        try:
            canonical_json(self.arguments)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"the arguments of {self.kind} are kept in the run's record, and this is not plain data: {error}."
            ) from error
        return self

    @property
    def arguments(self) -> dict[str, Any]:
        """What the constructor is called with, beside vocab_size."""
        return dict(self.model_extra or {})


def place_of(kind: str) -> str:
    """The file or module in a kind: of my_nets.py:MyModel and of mixer:my_nets.py:MyMixer, my_nets.py."""
    return kind.rpartition(":")[0].removeprefix(MIXER)


def user_module(name: str, **arguments: Any) -> ModuleSpec:
    """The spec of a module of one's own: `user_module("my_nets:MyModel", width=64)`."""
    clash = [argument for argument in arguments if argument in RESERVED]
    if clash:
        raise ValueError(f"{clash[0]!r} is a field of the spec itself. Name the constructor's argument otherwise.")
    return ModuleSpec.model_validate({"kind": name, **arguments})


def source_file(place: str) -> Path:
    """The file of a module name or path, found without importing it."""
    if place.endswith(".py"):
        path = Path(place)
        if not path.is_file():
            raise ValueError(f"there is no file {place} (from {os.getcwd()}). Name a Python file, path/to/my_nets.py.")
        return path
    first, *rest = place.split(".")
    try:
        spec = importlib.util.find_spec(first) or PathFinder.find_spec(first, [os.getcwd()])
    except (ValueError, ImportError):  # an empty name, or a module without a file
        spec = None
    for name in rest:  # step by step: find_spec of the whole name would import the packages on the way
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations or ())) if spec else None
    if spec is None or not spec.origin or not Path(spec.origin).is_file():
        raise ValueError(
            f"there is no module {place!r}, neither installed nor in {os.getcwd()}. Name a module, my_package.my_nets, "
            f"or a file, path/to/my_nets.py."
        )
    return Path(spec.origin)


def with_constructor_arguments(spec: type[ModelSpec], kind: str) -> type[ModelSpec]:
    """The spec class with a field for every argument of the constructor, read from its source without importing it.

    Such fields become flags. Arguments that are not plain numbers, texts or switches are left out, and so are all of a
    class that is not defined in its file: for those there is --model-args.
    """
    try:
        tree = ast.parse(source_file(place_of(kind)).read_text(encoding="utf-8"))
    except (ValueError, SyntaxError, OSError):  # whoever builds the model will say what is wrong
        return spec
    name = kind.rpartition(":")[2]
    found = [node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name]
    made = found[-1] if found else None
    if isinstance(made, ast.ClassDef):
        inits = [node for node in made.body if isinstance(node, ast.FunctionDef) and node.name == "__init__"]
        made = inits[-1] if inits else None
    fields: dict[str, Any] = {}
    for argument, default in _arguments_of(made) if made else ():
        kind_of = _PLAIN_TYPES.get(getattr(argument.annotation, "id", "")) or type(default)
        free = not hasattr(spec, argument.arg) and not argument.arg.startswith(("_", "model_"))
        if free and argument.arg not in {*spec.model_fields, "self", "vocab_size"} and kind_of in _PLAIN_TYPES.values():
            fields[argument.arg] = (kind_of, Field(default, description=f"argument of {name}"))
    return create_model(spec.__name__, __base__=spec, **fields) if fields else spec


_PLAIN_TYPES = {"int": int, "float": float, "str": str, "bool": bool}


def _arguments_of(made: ast.FunctionDef) -> list[tuple[ast.arg, Any]]:
    """Arguments with their defaults, as far as those are constants."""
    given, named = [*made.args.posonlyargs, *made.args.args], made.args.kwonlyargs
    defaults = [*[None] * (len(given) - len(made.args.defaults)), *made.args.defaults, *made.args.kw_defaults]
    values = [default.value if isinstance(default, ast.Constant) else None for default in defaults]
    return list(zip([*given, *named], values, strict=True))


class MixerSpec(ModuleSpec):
    """A bare mixer of the user's own, (batch, L, D) -> (batch, L, D), wrapped into a model: `mixer:my_nets.py:MyMixer`.

    This is the interface of the layers of flash-linear-attention, zoology and mad-lab. What is added around it is
    stated in the fields, the same for every mixer: an embedding, and `num_layers` times x + mixer(conv(norm(x))), then
    norm and head. Fields beside these are the arguments of the mixer's constructor.
    """

    model = "recallscope.architectures.user_module_model:MixerModel"

    width: Size = Field(description="D, of the embedding and of what the mixer reads and returns")
    num_layers: Size = Field(2, description="mixers, one after another, each with a residual connection")
    short_conv: Size = Field(3, description="taps of the causal convolution before every mixer, as in zoology; 1: none")
