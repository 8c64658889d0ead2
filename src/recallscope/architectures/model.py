"""RecallModel: what training, evaluation and probes ask of a model.

The least a model does is `forward`: tokens in, logits out. All else has a default that follows from it. A model that
can do better overrides the default. What only some models can do is a protocol in `capabilities.py`: code that needs
it asks for the protocol, and says what it leaves out if the model does not have it.
"""

from abc import ABC, abstractmethod
from typing import TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from recallscope.architectures.capabilities import lack
from recallscope.architectures.initial_weights import drawn_seed, lent_stream
from recallscope.ops.positions import at_positions
from recallscope.specs import ModelSpec
from recallscope.tasks.batch import Batch

P = TypeVar("P")
TOKENS_AT_ONCE = 2**14  # of a batch on its way through a model: temporaries stay in the cache


class MissingCapabilityError(ValueError):
    """The model cannot do what it was asked for; the message says why."""


class RecallModel(nn.Module, ABC):
    """Base of all models. A new one is blank; `draw_weights` fills it, or a circuit or a file does."""

    draws_noise = False  # whether a training step reads torch's global random stream (dropout)

    def __init__(self, spec: ModelSpec, vocab_size: int) -> None:
        super().__init__()
        self.spec = spec
        self.vocab_size = vocab_size

    @abstractmethod
    def forward(self, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch L V"]:
        """Logits after every token."""

    def draw_weights(self, generator: torch.Generator, *, embedding_std: float = 1.0) -> None:
        """Overwrite all weights with a fresh draw from the generator and from nothing else.

        By default torch's own: `reset_parameters` of every part. A model with parameters beside them says how to draw
        those by overriding this.
        """
        parts = [part for part in self.modules() if hasattr(part, "reset_parameters")]
        drawn = {id(weight) for part in parts for weight in part.parameters(recurse=False)}
        own = [name for name, weight in self.named_parameters() if id(weight) not in drawn]
        if own:
            raise NotImplementedError(
                f"{type(self).__name__}.{own[0]} is a parameter that torch has no default for: override draw_weights."
            )
        with lent_stream(drawn_seed(generator)):
            for part in parts:
                part.reset_parameters()  # type: ignore[operator]
        with torch.no_grad():
            for part in parts:
                if isinstance(part, nn.Embedding):
                    part.weight.mul_(embedding_std)

    def answer(self, tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"]) -> Float[Tensor, "batch Q V"]:
        """`forward` at the given positions."""
        return at_positions(self(tokens), positions)

    def best_tokens(self, tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"]) -> Int[Tensor, "batch Q"]:
        """The token with the largest logit at each position."""
        return self.answer(tokens, positions).argmax(dim=-1)

    def loss(self, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
        """Mean cross-entropy at the queries."""
        logits = self.answer(batch.tokens, batch.query_positions)
        return cross_entropy(logits.flatten(0, 1), batch.answers.flatten(), label_smoothing=label_smoothing)

    def add_gradients(self, batch: Batch, label_smoothing: float) -> Float[Tensor, ""]:
        """The loss of a batch; its gradients are added to the parameters'. A part of the batch at a time."""
        total = torch.zeros((), device=batch.tokens.device)
        for part in batch.split(max(1, TOKENS_AT_ONCE // batch.tokens.shape[1])):
            loss, share = self.loss(part, label_smoothing), len(part) / len(batch)  # as many queries in each sequence
            loss = loss if share == 1 else loss * share
            loss.backward()
            total = total + loss.detach()
        return total

    def undecayed(self) -> frozenset[str]:
        """Names of the parameters that weight decay must leave alone."""
        return frozenset()

    def capability(self, protocol: type[P]) -> P | None:
        """This model as something that can do what a protocol of `capabilities.py` asks; None if it cannot."""
        return cast(P, self) if self.why_not(protocol) is None else None

    def require(self, protocol: type[P]) -> P:
        """The same, or a MissingCapabilityError that says why not."""
        able = self.capability(protocol)
        if able is None:
            raise MissingCapabilityError(f"{self.why_not(protocol)}.")
        return able

    def why_not(self, protocol: type) -> str | None:
        """Why the model cannot do what a protocol asks, as a sentence without its stop; None if it can."""
        return None if isinstance(self, protocol) else lack(self.spec.kind or type(self).__name__, protocol)

    def rehearse(self, batch: Batch) -> None:
        """Raise a ValueError that explains it if the model cannot be trained on such batches."""

    def why_not_saved(self) -> str | None:
        """Why a file with spec and weights would not give the model back; None if it would."""
        return None


def build_model(
    spec: ModelSpec,
    vocab_size: int,
    generator: torch.Generator,
    *,
    embedding_std: float = 1.0,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> RecallModel:
    """The model a spec describes, weights drawn from `generator` and from nothing else.

    Paper: App. K.2 names the code bases; initial weights are theirs.
    """
    model = spec.blank_model(vocab_size).to(device=device, dtype=dtype)
    model.draw_weights(generator, embedding_std=embedding_std)
    return model
