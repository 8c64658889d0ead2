"""Caches as trees of tensors: copied, repeated, counted and reset without asking which model they are of.

A cache is an object whose attributes hold tensors, or lists, dicts and objects that do, as those of transformers; a
tuple with one entry per layer, as those of our own models; or a tensor. The first axis of a tensor is the batch; its
name is that of the attribute, or the key, that leads to it.
"""

import copy
from collections.abc import Callable, Sequence
from typing import Any

from jaxtyping import Int
from torch import Tensor

_CONTAINERS = (Tensor, dict, list, tuple)


def mapped(part: Any, change: Callable[[str, Tensor], Tensor], name: str = "") -> Any:
    """A copy of the tree in which every tensor is what `change` makes of it, given its name."""
    if isinstance(part, Tensor):
        return change(name, part)
    if isinstance(part, dict):
        return {key: mapped(item, change, key if isinstance(key, str) else name) for key, item in part.items()}
    if isinstance(part, list | tuple):
        return type(part)(mapped(item, change, name) for item in part)
    if isinstance(part, type) or not hasattr(part, "__dict__"):
        return part
    new = copy.copy(part)
    for attribute, value in vars(part).items():
        if isinstance(value, _CONTAINERS):
            setattr(new, attribute, mapped(value, change, attribute))
    return new


def chosen(cache: Any, rows: Int[Tensor, " rows"], batch: int) -> Any:
    """A copy of a cache of `batch` sequences whose row i is row `rows[i]` of it; no tensor is shared."""

    def pick(_: str, tensor: Tensor) -> Tensor:
        return tensor.index_select(0, rows) if tensor.ndim and len(tensor) == batch else tensor.clone()

    return mapped(cache, pick)


def named_tensors(cache: Any) -> list[tuple[str, Tensor]]:
    """Every tensor of a cache, with its name."""
    found: list[tuple[str, Tensor]] = []

    def note(name: str, tensor: Tensor) -> Tensor:
        found.append((name, tensor))
        return tensor

    mapped(cache, note)
    return found


def layers_of(cache: Any) -> Sequence[Any]:
    """The parts of a cache by layer; none where it has no such parts."""
    layers = cache if isinstance(cache, tuple) else getattr(cache, "layers", ())
    return layers if isinstance(layers, Sequence) else ()


def reset_layer(cache: Any, layer: int) -> None:
    """Set the memory of one layer to zero, in place: what it was before the first token."""
    for _, tensor in named_tensors(layers_of(cache)[layer]):
        tensor.zero_()
