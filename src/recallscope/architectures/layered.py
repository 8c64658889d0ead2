"""LayeredModel: a tied embedding around layers that remember, and what one layer computes, tensor by tensor."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import embedding

from recallscope.architectures.capabilities import Step, Steps, Stored
from recallscope.architectures.model import RecallModel, draw_normal
from recallscope.architectures.sizes import Sizes
from recallscope.ops.linear_scan import at_positions
from recallscope.ops.query_loss import query_loss
from recallscope.tasks.batch import Batch

LOGITS_AT_ONCE = 2**20  # when only the largest is asked for


@dataclass(frozen=True)
class Details:
    """What checkpoints from elsewhere vary. Every model a spec describes has the defaults, which are mamba-ssm's."""

    norm_eps: float = 1e-5
    """added to the mean square in every norm"""
    projection_bias: bool = False
    """in_proj and out_proj have a bias"""
    tied_head: bool = True
    """the head is the embedding, transposed; else it has weights of its own"""
    delta_rank: int | None = None
    """R, rank of the Δ projection of Mamba-1; ceil(D/16) unless given"""
    delta_limits: tuple[float, float] = (0.0, math.inf)
    """Δ of Mamba-2 is clamped to these after softplus"""


OURS = Details()


@dataclass(frozen=True)
class LayerTrace:
    """One layer, in the paper's letters; what a model lacks is None. Head axes are M, or 1 where shared.

    Paper: Tab. 3 (`tab:mamba_dims`) and Tab. 7 (`tab:mamba2_dims`), time first.
    """

    x: Float[Tensor, "batch L D"]
    """what the layer reads: the embedding, or the layer below"""
    x_hat: Float[Tensor, "batch L D_in"]
    """after projection, convolution and activation: what enters the SSM"""
    B: Float[Tensor, "batch L *heads N"]
    """where it is written (keys)"""
    C: Float[Tensor, "batch L ... N"]
    """where it is read (queries)"""
    y_hat: Float[Tensor, "batch L D_in"]
    """what the SSM says, before the gate"""
    y: Float[Tensor, "batch L D"]
    """what the layer hands on: P_out ŷ, plus x where there is a residual"""
    x_heads: Float[Tensor, "batch L ... P"] | None = None
    """x̂ as the heads see it (multi-head models)"""
    y_heads: Float[Tensor, "batch L ... P"] | None = None
    """what every head says (multi-head models)"""
    gate: Float[Tensor, "batch L D_in"] | None = None
    """ẑ after its activation (full Mamba)"""
    delta: Float[Tensor, "batch L D_in"] | None = None
    """Δ after softplus (full Mamba)"""
    h: Float[Tensor, "batch L ... N"] | None = None
    """every state, `L D_in N` or `L M P N`; large, so only when asked for"""


@dataclass(frozen=True)
class Trace:
    """A whole forward pass: embedding, layers from the bottom up, logits."""

    x_e: Float[Tensor, "batch L D"]
    layers: tuple[LayerTrace, ...]
    logits: Float[Tensor, "batch L V"]


class RecallLayer(nn.Module, ABC):
    """One layer. `trace` keeps every tensor; `mix` returns all positions; `read` only the given ones."""

    residual = False  # whether the layer adds its input to its output

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

    @abstractmethod
    def steps(self, x: Float[Tensor, "batch L D"]) -> Steps:
        """The layer as a recurrence, one token at a time."""

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

    def passed_on(self, x: Float[Tensor, "batch T D"], y_out: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T D"]:
        """What the layer above reads: the output, plus the input where there is a residual."""
        return x + y_out if self.residual else y_out

    @abstractmethod
    def draw_weights(self, generator: torch.Generator) -> None:
        """Overwrite the weights with a fresh draw, as published."""


class LayeredModel(RecallModel):
    """Embedding E, layers, and Eᵀ as the head. `trace` shows every named tensor of a forward pass.

    A new model is blank (weights 0, norms 1).

    Paper: embedding E and its transpose around the mixers of Alg. 1 (`alg:mamba`),
        Alg. 3 (`app-alg:mamba-layers`) and Alg. 4 (`alg:mamba-2`).
    """

    spec: Sizes
    details: Details
    E: nn.Parameter
    W_head: nn.Parameter | None
    layers: Sequence[RecallLayer]

    def __init__(
        self,
        spec: Sizes,
        vocab_size: int,
        layers: Iterable[RecallLayer],
        details: Details = OURS,
        stem: nn.Module | None = None,
    ) -> None:
        super().__init__(spec, vocab_size)
        if vocab_size < 1:
            raise ValueError(f"vocab_size={vocab_size}: E is D x V (Tab. 3) and needs a token. Use vocab_size >= 2.")
        self.details = details
        self.E = nn.Parameter(torch.zeros(spec.embed_dim, vocab_size))
        tied = self.details.tied_head
        self.register_parameter("W_head", None if tied else nn.Parameter(torch.zeros(spec.embed_dim, vocab_size)))
        self.stem = stem  # what stands between the embedding and the layers, and may look back
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
        """`answer` before the head: the vectors that are compared with the embedding."""
        *below, last = self.layers
        if self.stem is None:
            table = self.E.T.contiguous()  # rows in one piece, for the look-ups
            if not below:
                return self.finish(last.read_tokens(table, tokens, positions))
            first, *below = below
            x = first.mix_tokens(table, tokens)
        else:
            x = self.embed(tokens)
        for layer in below:
            x = layer.mix(x)
        return self.finish(last.read(last.project_in(x), at_positions(x, positions), positions))

    @torch.no_grad()
    def answer_stored(
        self, tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"], store: Callable[[Step], Stored]
    ) -> Float[Tensor, "batch Q V"]:
        """Token by token; the last layer is read where it is asked."""
        x, asked = self.embed(tokens), set(positions.flatten().tolist())
        for number, layer in enumerate(self.layers):
            x = layer.steps(x).run(number, store, asked if number == len(self.layers) - 1 else None)
        return self.unembed(self.finish(at_positions(x, positions)))

    def best_tokens(self, tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"]) -> Int[Tensor, "batch Q"]:
        """The token with the largest logit at each position, a chunk of queries at a time."""
        y, head = self.hidden_at(tokens, positions), self.head
        rows = max(1, LOGITS_AT_ONCE // head.shape[1])
        return torch.cat([(part @ head).argmax(dim=-1) for part in y.flatten(0, 1).split(rows)]).view(y.shape[:2])

    def loss(self, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
        """Mean cross-entropy at the queries, fused with the head."""
        y = self.hidden_at(batch.tokens, batch.query_positions)
        return query_loss(y.flatten(0, 1), self.head, batch.answers.flatten(), label_smoothing)

    def draw_weights(self, generator: torch.Generator, *, embedding_std: float = 1.0) -> None:
        """Overwrite all weights with a fresh draw, as published: E ~ N(0, std²), and each layer its own."""
        draw_normal(self.E, embedding_std, generator)
        for layer in self.layers:
            layer.draw_weights(generator)

    def why_not_saved(self) -> str | None:
        """A checkpoint from elsewhere may differ from what its spec says."""
        if self.details == OURS:
            return None
        return f"this model was loaded from elsewhere and differs from what its spec says ({self.details})"

    def finish(self, y: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T D"]:
        """What stands between the last layer and the head: nothing, or a norm."""
        return y

    def embed(self, tokens: Int[Tensor, "batch T"]) -> Float[Tensor, "batch T D"]:
        """x_e = E x, and what the stem makes of it."""
        x = embedding(tokens, self.E.T)
        return x if self.stem is None else self.stem(x)

    @property
    def head(self) -> Float[Tensor, "D V"]:
        """What the output is compared with: the embedding, unless a checkpoint brought a head of its own."""
        return self.E if self.W_head is None else self.W_head

    def unembed(self, y: Float[Tensor, "batch T D"]) -> Float[Tensor, "batch T V"]:
        """Eᵀ y: the head is the embedding, transposed."""
        return einsum(y, self.head, "batch T D, D V -> batch T V")
