"""One way to read a context and to query it, for models of transformers, of ours, and of anybody.

`read` gives a cache, a tree of tensors (`caches`). `go_on` reads more tokens after it and may change the cache, so that
every query needs a copy. `from_scratch` is the plain twin: all tokens at once, no cache.
"""

import inspect
from abc import ABC, abstractmethod
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from recallscope.architectures.capabilities import Continues
from recallscope.architectures.model import RecallModel
from recallscope.measuring.checkpoints.caches import mapped
from recallscope.ops.state_rounding import kept_residual, round_state
from recallscope.state_precision import StatePrecision

CACHES = ("past_key_values", "cache_params", "state")  # what models of transformers call their cache


class Reader(ABC):
    """A model that reads and is queried."""

    has_cache = True

    def __init__(self, model: nn.Module) -> None:
        self.model = model.eval()
        self.device = next(model.parameters()).device

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Logits of an answer."""

    @property
    def longest(self) -> int | None:
        """The longest sequence that it has positions for; None if there is no such limit."""
        return None

    @abstractmethod
    def read(self, tokens: Int[Tensor, "batch L"]) -> Any:
        """The cache after the tokens."""

    @abstractmethod
    def go_on(self, cache: Any, tokens: Int[Tensor, "batch T"]) -> Float[Tensor, "batch V"]:
        """Logits after more tokens; the cache may be changed."""

    @abstractmethod
    def from_scratch(self, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch V"]:
        """Logits after the tokens, without a cache."""


class CacheReader(Reader):
    """A causal language model with the interface of transformers.

    It goes on one token at a time: several at once give wrong states in some recurrent families. Where all memory is
    key-value memory, `together` may be set, and they are read in one forward pass.
    """

    together = False

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        takes = inspect.signature(model.forward).parameters
        self.name = next((name for name in CACHES if name in takes), "")
        self.last = {"logits_to_keep": 1} if "logits_to_keep" in takes else {}
        if not self.name:
            raise ValueError(
                f"{type(model).__name__} has no cache: its forward takes none of {', '.join(CACHES)}. A probe reads "
                f"the facts once and asks from copies of the cache. Use a model that can generate with a cache."
            )

    @property
    def config(self) -> Any:
        """The configuration of its text part."""
        config: Any = self.model.config
        return config.get_text_config() if hasattr(config, "get_text_config") else config

    @property
    def vocab_size(self) -> int:
        """Rows of the head, which may be more than the tokenizer has words."""
        return int(self.config.vocab_size)

    @property
    def longest(self) -> int | None:
        """As its configuration says."""
        return getattr(self.config, "max_position_embeddings", None)

    def read(self, tokens: Int[Tensor, "batch L"]) -> Any:
        """All tokens in one forward pass."""
        cache = getattr(self.model(input_ids=tokens, use_cache=True, **self.last), self.name, None)
        if cache is None:
            raise ValueError(
                f"{type(self.model).__name__} gives back no cache ({self.name} is None), and a probe asks from it."
            )
        return cache

    def go_on(self, cache: Any, tokens: Int[Tensor, "batch T"]) -> Float[Tensor, "batch V"]:
        """One token at a time, or all together."""
        for part in [tokens] if self.together else tokens.split(1, dim=1):
            logits, cache = self.step(cache, part)
        return logits

    def step(self, cache: Any, tokens: Int[Tensor, "batch T"]) -> tuple[Float[Tensor, "batch V"], Any]:
        """Logits and cache after one more forward pass."""
        output = self.model(input_ids=tokens, use_cache=True, **{self.name: cache}, **self.last)
        return output.logits[:, -1].float(), getattr(output, self.name)

    def from_scratch(self, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch V"]:
        """One forward pass."""
        return self.model(input_ids=tokens, use_cache=False, **self.last).logits[:, -1].float()


class OwnReader(Reader):
    """A model of ours that goes on from where it has read to."""

    model: RecallModel

    @property
    def vocab_size(self) -> int:
        """V."""
        return self.model.vocab_size

    def read(self, tokens: Int[Tensor, "batch L"]) -> Any:
        """State and window of every layer."""
        return self.model.require(Continues).read_once(tokens)

    def go_on(self, cache: Any, tokens: Int[Tensor, "batch T"]) -> Float[Tensor, "batch V"]:
        """All at once."""
        return self.model.require(Continues).answer_after(cache, tokens)

    def from_scratch(self, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch V"]:
        """`answer` at the last position."""
        return self.model.answer(tokens, torch.full_like(tokens[:, :1], tokens.shape[1] - 1))[:, 0].float()


class _OfReader(Reader):
    """Another reader, read in another way."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader.model)
        self.reader = reader

    @property
    def vocab_size(self) -> int:
        """Of the reader."""
        return self.reader.vocab_size

    @property
    def longest(self) -> int | None:
        """Of the reader."""
        return self.reader.longest


class StoredReader(_OfReader):
    """A reader whose recurrent states are rounded: after every few tokens, or once, between reading and the query.

    As in a serving engine, a token's output is computed before its state is stored. Stochastic rounding draws from its
    own generator.
    """

    def __init__(self, reader: Reader, precision: StatePrecision, states: set[str], seed: int) -> None:
        super().__init__(reader)
        self.precision, self.states = precision, states
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.seen = 0
        if not states:
            raise ValueError(
                f"{type(reader.model).__name__} has no recurrent state: all of its memory grows with the context. "
                f"--state-format rounds states of a fixed size, such as those of Mamba, Mamba-2 and Qwen3-Next."
            )
        if precision.every != "once" and not isinstance(reader, CacheReader):
            raise ValueError(
                f"{type(reader.model).__name__} is stored once, after reading: --round-every once. For every token "
                f"use recallscope measure WEIGHTS --state-format {precision.format}."
            )

    def read(self, tokens: Int[Tensor, "batch L"]) -> Any:
        """The cache as it is stored after the tokens."""
        if self.precision.every == "once":
            return self.stored(self.reader.read(tokens))
        first = tokens[:, : self.precision.every]
        self.seen = first.shape[1]
        cache = self._stored_in_turn(self.reader.read(first), self.seen)
        if self.seen < tokens.shape[1]:
            _, cache = self._steps(cache, tokens[:, self.seen :], self.seen)
        self.seen = tokens.shape[1]
        return cache

    def go_on(self, cache: Any, tokens: Int[Tensor, "batch T"]) -> Float[Tensor, "batch V"]:
        """From where it has read to, storing in turn."""
        if self.precision.every == "once":
            return self.reader.go_on(cache, tokens)
        return self._steps(cache, tokens, self.seen)[0]

    def from_scratch(self, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch V"]:
        """All but the last token are read, then it."""
        return self.go_on(self.read(tokens[:, :-1]), tokens[:, -1:])

    def _steps(self, cache: Any, tokens: Tensor, seen: int) -> tuple[Tensor, Any]:
        assert isinstance(self.reader, CacheReader)
        for token in tokens.split(1, dim=1):
            logits, cache = self.reader.step(cache, token)
            seen += 1
            cache = self._stored_in_turn(cache, seen)
        return logits, cache

    def _stored_in_turn(self, cache: Any, seen: int) -> Any:
        assert self.precision.every != "once"
        return cache if seen % self.precision.every else self.stored(cache)

    def stored(self, cache: Any) -> Any:
        """A copy whose states are rounded, in full precision; error feedback keeps its residual in them."""

        def store(name: str, tensor: Tensor) -> Tensor:
            if name not in self.states or tensor.ndim < 3:
                return tensor
            exact = tensor.to(torch.promote_types(tensor.dtype, torch.float32))
            rounded = round_state(exact, self.precision, self.generator)
            if self.precision.rounding == "error-feedback":
                rounded = rounded + kept_residual(exact, rounded, self.precision)
            return rounded.to(tensor.dtype)

        return mapped(cache, store)


class ScratchReader(_OfReader):
    """Any reader, or a model of ours without a cache, that reads the context again for every query."""

    has_cache = False

    def read(self, tokens: Int[Tensor, "batch L"]) -> Any:
        """The tokens themselves."""
        return tokens

    def go_on(self, cache: Any, tokens: Int[Tensor, "batch T"]) -> Float[Tensor, "batch V"]:
        """Context and query."""
        return self.from_scratch(torch.cat((cache, tokens), dim=1))

    def from_scratch(self, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch V"]:
        """Of the reader."""
        return self.reader.from_scratch(tokens)


def reader_of(model: nn.Module, *, copies: bool = True) -> Reader:
    """The reader of a model, by what it can do; without `copies` one that asks from scratch."""
    if not isinstance(model, RecallModel):
        reader: Reader = CacheReader(model)
        return reader if copies else ScratchReader(reader)
    reader = OwnReader(model)
    return reader if copies and model.why_not(Continues) is None else ScratchReader(reader)
