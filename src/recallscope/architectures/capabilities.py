"""Capabilities: what some models can do beside answering, as small protocols, and the plain data they hand over.

Code that needs one asks `model.capability(HasState)` and says what it leaves out if the answer is None, or asks
`model.require(HasState)`, which raises an error that says why. Nothing asks which kind a model is. A user's own module
has a capability as soon as it has the methods. What a capability shows carries no gradient.
"""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.operators import Operators

Symbols = Literal["tokens", "stream"]


@dataclass(frozen=True)
class Attention:
    """One layer as attention: at t the heads read Σ_τ maps_τt values_τ, and hand on `out` of gate times that.

    Where a norm follows the gate, it is left out: it divides all sources by the same length.
    """

    maps: Float[Tensor, "batch #heads #P L L"]
    """weights (source τ, query t), 0 for τ > t; one map per head, or one per channel of a head"""
    values: Float[Tensor, "batch L #heads P"]
    """what each source offers"""
    out: Float[Tensor, "D heads P"]
    """from what the heads read to the residual stream"""
    gate: Float[Tensor, "batch L #heads #P"] | None = None
    """factor on what is read, at the place that reads"""


@dataclass(frozen=True)
class FactCodes:
    """What facts leave in the state of one layer: Σ over places of a value code times a key code, v' k'ᵀ.

    Paper: Eq. 13 (`eq:h-prime`); App. D.3 (`app-subsec:hidden-as-hash`).
    """

    values: Float[Tensor, "places V #heads P"]
    """v' of every token, for every place of a window that can hold a fact"""
    keys: Float[Tensor, "places V #heads N"]
    """k' of every token, likewise"""
    explained: float | None = None
    """share of the squared norm of the model's writes; None if the codes follow from the weights"""

    def writes(self, keys: Int[Tensor, " n"], values: Int[Tensor, " n"]) -> Float[Tensor, "n heads P N"]:
        """v' k'ᵀ of each fact."""
        v, k = self.values[:, values], self.keys[:, keys]
        return einsum(v, k, "places n heads P, places n heads N -> n heads P N")


@runtime_checkable
class HasState(Protocol):
    """Shows the memory that carries the context past a token."""

    def state_after(self, tokens: Int[Tensor, "batch L"]) -> tuple[Float[Tensor, "batch heads P N"], ...]:
        """The memory of every layer after the last of the tokens, one matrix per head."""
        ...


@runtime_checkable
class HasKeys(Protocol):
    """Shows the keys it writes under and the queries it reads with."""

    def keys_and_queries(
        self, tokens: Int[Tensor, "batch L"], layer: int = -1
    ) -> tuple[Float[Tensor, "batch L heads_k N"], Float[Tensor, "batch L heads_q N"]]:
        """B and C of every token; a head axis of 1 is shared by all heads."""
        ...


@runtime_checkable
class HasAttention(Protocol):
    """Can be written as attention: what is read is a weighted sum of what earlier tokens offered."""

    def attention(self, tokens: Int[Tensor, "batch L"], layer: int = -1) -> Attention:
        """One layer, exactly, decay included."""
        ...

    def logit_directions(self) -> Float[Tensor, "D V"]:
        """Direction in the residual stream that raises each token's logit; a last norm's length is left out."""
        ...


@runtime_checkable
class HasOperators(Protocol):
    """Is a few fixed matrices per head (Eq. 9), the same for every input."""

    residual: bool
    """whether each layer adds its input to its output"""

    def operators(self, symbols: Symbols = "tokens") -> tuple[tuple[Operators, ...], ...]:
        """The operators of every head of every layer, on tokens or on the axes of the residual stream."""
        ...

    def embed(self, tokens: Int[Tensor, "batch T"]) -> Float[Tensor, "batch T D"]:
        """The residual stream before the first layer."""
        ...

    def unembed(self, y: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T V"]:
        """Logits from the residual stream after the last layer."""
        ...


@runtime_checkable
class WritesFacts(Protocol):
    """Says what a fact leaves in its memory, and answers after the memory was edited."""

    def fact_codes(self) -> tuple[FactCodes, ...]:
        """The codes of facts in every layer."""
        ...

    def pair_writes(
        self, keys: Int[Tensor, " n"], values: Int[Tensor, " n"]
    ) -> tuple[Float[Tensor, "n heads P N"], ...] | None:
        """What the model itself writes at a value that follows a key; None where that depends on more than the pair."""
        ...

    def answer_edited(
        self,
        tokens: Int[Tensor, "batch L"],
        positions: Int[Tensor, "batch Q"],
        edits: tuple[Float[Tensor, "batch heads P N"], ...],
        *,
        after: int,
        since: Int[Tensor, " batch"] | None = None,
    ) -> Float[Tensor, "batch Q V"]:
        """Logits at the positions, had the states been changed right after token `after` (-1: before the first).

        With `since`, the edits were written at these tokens, one per sequence, and have faded on the way to `after`.
        """
        ...


@runtime_checkable
class HasRotations(Protocol):
    """Can be rotated inside without changing what it computes."""

    def rotated(self, generator: torch.Generator, *, spread: float = 0.5) -> Any:
        """A copy with other weights that is the same function; every freedom is drawn at random."""
        ...


def lack(name: str, protocol: type) -> str:
    """The sentence for a model without a capability."""
    does = (protocol.__doc__ or "").splitlines()[0].rstrip(".")
    return f"{name} has no {protocol.__name__} ({does[:1].lower()}{does[1:]})"
