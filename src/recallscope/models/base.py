"""RecallModel: tokens in, logits out, a tied embedding around layers that remember."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import cast

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from recallscope.models.details import OURS, Details
from recallscope.models.draws import draw_normal
from recallscope.models.trace import LayerTrace, Trace
from recallscope.ops import at_positions
from recallscope.specs import ModelSpec


class RecallLayer(nn.Module, ABC):
    """One layer, in the ways it is used: all of it (`trace`), its output (`mix`), or only where asked (`read`)."""

    @abstractmethod
    def trace(self, x: Float[Tensor, "batch L D"], *, states: bool = False) -> LayerTrace:
        """The layer, line by line, with every tensor kept; the states h too, if asked for."""

    @abstractmethod
    def project_in(self, x: Float[Tensor, "*batch D"]) -> Float[Tensor, "*batch C"]:
        """All that is done to each token alone, before tokens meet."""

    @abstractmethod
    def read(
        self,
        x_in: Float[Tensor, "batch L C"],
        x_q: Float[Tensor, "batch Q D"],
        positions: Int[Tensor, "batch Q"],
    ) -> Float[Tensor, "batch Q D"]:
        """`trace(x).y` at the positions, from `x_in = project_in(x)` and from `x_q`, x at the positions."""

    def mix(self, x: Float[Tensor, "batch L D"]) -> Float[Tensor, "batch L D"]:
        """`trace(x).y`, for the layer above: nothing else is kept."""
        return self.trace(x).y

    def mix_tokens(self, table: Float[Tensor, "V D"], tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch L D"]:
        """`mix` of tokens given by number: the first layer may work on the table instead."""
        return self.mix(embedding(tokens, table))

    def read_tokens(
        self, table: Float[Tensor, "V D"], tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"]
    ) -> Float[Tensor, "batch Q D"]:
        """`read` of tokens given by number; they are projected once for the vocabulary, if the batch has more."""
        if len(table) < tokens.numel():
            x_in = embedding(tokens, self.project_in(table))
        else:
            x_in = self.project_in(embedding(tokens, table))
        return self.read(x_in, embedding(tokens.gather(dim=1, index=positions), table), positions)

    @abstractmethod
    def draw_weights(self, generator: torch.Generator) -> None:
        """Overwrite the weights with a fresh draw, as published."""


class RecallModel(nn.Module, ABC):
    """What every model can do: say all (`forward`), answer where asked (`answer`), show how (`trace`).

    A new model is blank (weights 0, norms 1): `build_model` draws its weights, a circuit writes them down.

    Paper: embedding E and its transpose around the mixers of Alg. 1 (`alg:mamba`),
        Alg. 3 (`app-alg:mamba-layers`) and Alg. 4 (`alg:mamba-2`).
    """

    spec: ModelSpec
    vocab_size: int
    details: Details
    E: nn.Parameter
    W_head: nn.Parameter | None
    layers: Sequence[RecallLayer]

    def __init__(
        self,
        spec: ModelSpec,
        vocab_size: int,
        layers: Iterable[RecallLayer],
        details: Details = OURS,
    ) -> None:
        super().__init__()
        if vocab_size < 1:
            raise ValueError(f"vocab_size={vocab_size}: E is D x V (Tab. 3) and needs a token. Use vocab_size >= 2.")
        self.spec = spec
        self.vocab_size = vocab_size
        self.details = details
        self.E = nn.Parameter(torch.zeros(spec.embed_dim, vocab_size))
        tied = self.details.tied_head
        self.register_parameter("W_head", None if tied else nn.Parameter(torch.zeros(spec.embed_dim, vocab_size)))
        self.layers = cast(Sequence[RecallLayer], nn.ModuleList(layers))

    def forward(self, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch L V"]:
        """Logits after every token."""
        return self.trace(tokens).logits

    def trace(self, tokens: Int[Tensor, "batch L"], *, states: bool = False) -> Trace:
        """Every named tensor of a forward pass; the states h too, if asked for, as they are large."""
        x = x_e = self.embed(tokens)
        layers = []
        for layer in self.layers:
            layers.append(layer.trace(x, states=states))
            x = layers[-1].y
        return Trace(x_e=x_e, layers=tuple(layers), logits=self.unembed(self.finish(x)))

    def answer(self, tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"]) -> Float[Tensor, "batch Q V"]:
        """`forward` at the given positions, without computing what only the others need."""
        return self.unembed(self.hidden_at(tokens, positions))

    def hidden_at(
        self, tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"]
    ) -> Float[Tensor, "batch Q D"]:
        """`answer` before the head: what the embedding is compared with."""
        *below, last = self.layers
        table = self.E.T.contiguous()  # rows in one piece, for the look-ups
        if not below:
            return self.finish(last.read_tokens(table, tokens, positions))
        first, *between = below
        x = first.mix_tokens(table, tokens)
        for layer in between:
            x = layer.mix(x)
        return self.finish(last.read(last.project_in(x), at_positions(x, positions), positions))

    def draw_weights(self, generator: torch.Generator, *, embedding_std: float = 1.0) -> None:
        """Overwrite all weights with a fresh draw, as published: E ~ N(0, std²), and each layer its own."""
        draw_normal(self.E, embedding_std, generator)
        for layer in self.layers:
            layer.draw_weights(generator)

    def undecayed(self) -> frozenset[str]:
        """Names of the parameters that weight decay must leave alone."""
        return frozenset()

    def finish(self, y: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T D"]:
        """What stands between the last layer and the head: nothing, or a norm."""
        return y

    def embed(self, tokens: Int[Tensor, "batch T"]) -> Float[Tensor, "batch T D"]:
        """x_e = E x."""
        return embedding(tokens, self.E.T)

    @property
    def head(self) -> Float[Tensor, "D V"]:
        """What the output is compared with: the embedding, unless a checkpoint brought a head of its own."""
        return self.E if self.W_head is None else self.W_head

    def unembed(self, y: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T V"]:
        """Eᵀ y: the head is the embedding, transposed."""
        return einsum(y, self.head, "batch T D, D V -> batch T V")
