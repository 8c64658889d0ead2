"""Circuits by name: what each is, how its weights are written down, and which laws speak about it.

A circuit is a function from sizes to a model with a decorator, in a module of this package that is listed in `CIRCUITS`
or in a file of your own (see `recallscope.registry`); `recallscope design --circuit NAME` builds and measures it.
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
class CircuitSizes:
    """What a circuit is made for; circuits use what they need of it."""

    vocab_size: int
    embed_dim: int
    state_dim: int
    num_layers: int = 1
    num_heads: int = 1
    kv_share: float = 0.5  # of key-value pairs among all pairs that are written: 1/2 for AR, about 5/12 for MQAR
    write_rate: float = 0.05  # b, what a delta rule replaces of the old value


Build = Callable[[CircuitSizes, "torch.Generator"], "RecallModel"]


@dataclass(frozen=True)
class Circuit:
    """One way to write recall down as weights."""

    name: str
    summary: str
    build: Build
    laws: tuple[str, ...] = DESIGNED_LAWS
    """names of laws that speak about it; `design` prints those that are registered"""
    law_options: Mapping[str, str] = field(default_factory=dict)
    """keywords of these laws, and the fields of `CircuitSizes` that they take"""
    head_pattern: str | None = None
    """the pattern by which the laws count its heads, if it has several"""
    fixed_size: bool = False
    """D = N = V: embed_dim and state_dim are not chosen"""


CIRCUITS: Registry[Circuit] = Registry(
    "circuit",
    {
        "bank": "recallscope.circuits.bank:bank",
        "delta": "recallscope.circuits.gated:delta",
        "depth": "recallscope.circuits.linear:depth",
        "gated": "recallscope.circuits.gated:gated",
        "MVA": "recallscope.circuits.linear:mva",
        "MQA": "recallscope.circuits.linear:mqa",
        "MKA": "recallscope.circuits.linear:mka",
        "MHA": "recallscope.circuits.linear:mha",
        "least-squares": "recallscope.circuits.gated:least_squares",
        "selective-soft": "recallscope.circuits.linear:soft",
        "selective-hard": "recallscope.circuits.linear:hard",
        "ideal": "recallscope.circuits.linear:ideal",
        "compressive": "recallscope.circuits.linear:compressive",
    },
)


def circuit(name: str, summary: str, **about: Any) -> Callable[[Build], Circuit]:
    """Decorator: make a circuit of the function that writes it down; keywords are further fields of `Circuit`."""

    def register(build: Build) -> Circuit:
        made = Circuit(name, summary, build, **about)
        CIRCUITS.add(name, made, module=build.__module__)
        return made

    return register
