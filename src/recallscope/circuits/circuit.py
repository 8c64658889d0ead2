"""Circuits by name: what each is, how its weights are written down, and which laws speak about it.

Adding a circuit is one decorator on a function from sizes to a model, in a module of this package or in a file of your
own (see `recallscope.registry`); `recallscope design --circuit NAME` then writes it down and measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from recallscope.registry import Registry

if TYPE_CHECKING:
    import torch

    from recallscope.architectures.model import RecallModel

DESIGNED_LAWS = ("designed-improved", "designed-exact", "designed-unified-mv", "designed-unified", "designed")


@dataclass(frozen=True)
class Sizes:
    """What a circuit is made for; circuits use what they need of it."""

    vocab_size: int
    embed_dim: int
    state_dim: int
    num_layers: int = 1
    num_heads: int = 1
    kv_share: float = 0.5  # of key-value pairs among all pairs that are written: 1/2 for AR, about 5/12 for MQAR
    write_rate: float = 0.05  # b, what a delta rule replaces of the old value


Build = Callable[[Sizes, "torch.Generator"], "RecallModel"]


@dataclass(frozen=True)
class Circuit:
    """One way to write recall down as weights."""

    name: str
    summary: str
    build: Build
    laws: tuple[str, ...] = DESIGNED_LAWS
    """names of laws that speak about it; `design` prints those that are registered"""
    law_options: Mapping[str, str] = field(default_factory=dict)
    """keywords of these laws, and the fields of `Sizes` that they take"""
    head_pattern: str | None = None
    """the pattern by which the laws count its heads, if it has several"""
    fixed_size: bool = False
    """D = N = V: embed_dim and state_dim are not chosen"""


CIRCUITS: Registry[Circuit] = Registry("circuit", "recallscope.circuits")


def circuit(name: str, summary: str, **about: Any) -> Callable[[Build], Build]:
    """Decorator: register a function that writes a circuit down; keywords are further fields of `Circuit`."""

    def register(build: Build) -> Build:
        CIRCUITS.add(name, Circuit(name, summary, build, **about), module=build.__module__)
        return build

    return register
