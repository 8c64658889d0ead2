"""A model whose state is stored in few bits between tokens: any model that steps its state, asked as any other."""

from dataclasses import dataclass
from typing import TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.capabilities import Step, StepsState, Stored
from recallscope.architectures.model import RecallModel
from recallscope.ops.state_rounding import kept_residual, round_state
from recallscope.state_precision import StatePrecision

P = TypeVar("P")
ENTRIES_AT_ONCE = 2**20  # logits, while answers are looked for


@dataclass(frozen=True)
class StateRounding:
    """What happens to a state between tokens; `first` is the first token of each sequence that asks something."""

    precision: StatePrecision
    generator: torch.Generator
    first: Int[Tensor, " batch"]

    def __call__(self, step: Step) -> Stored:
        """What is read is what was stored; with error feedback the next token finds the residual added back."""
        precision, state = self.precision, step.state
        if precision.every == "once":
            now = self.first - 1 == step.t
            if not bool(now.any()):
                return state, state
            state = torch.where(now[:, None, None, None], round_state(state, precision, self.generator), state)
            return state, state
        if (step.t + 1) % precision.every:
            return state, state
        stored = round_state(state, precision, self.generator)
        if precision.rounding == "error-feedback":
            return stored + kept_residual(state, stored, precision), stored
        return stored, stored


class StoredState(RecallModel):
    """A model that answers with its state rounded; all else it leaves to the model itself.

    Stochastic rounding draws from a generator of its own: the same calls in the same order give the same answers.
    """

    def __init__(self, model: RecallModel, precision: StatePrecision, *, seed: int = 0) -> None:
        model.require(StepsState)
        super().__init__(model.spec, model.vocab_size)
        self.model, self.precision = model, precision
        self.seed, self.generator = seed, torch.Generator().manual_seed(seed)

    def capability(self, protocol: type[P]) -> P | None:
        """Those of the model: what it shows of itself is not rounded."""
        return self.model.capability(protocol)

    def why_not(self, protocol: type) -> str | None:
        """As of the model."""
        return self.model.why_not(protocol)

    def forward(self, tokens: Int[Tensor, "batch L"]) -> Float[Tensor, "batch L V"]:
        """Logits after every token; a state that is stored once is stored before the last of them."""
        batch, L = tokens.shape
        positions = torch.arange(L, device=tokens.device).expand(batch, L)
        return self._answer(tokens, positions, first=positions[:, -1])

    def answer(self, tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"]) -> Float[Tensor, "batch Q V"]:
        """Logits at the positions; a state that is stored once is stored before the first of them."""
        return self._answer(tokens, positions, first=positions.min(dim=1).values)

    def best_tokens(self, tokens: Int[Tensor, "batch L"], positions: Int[Tensor, "batch Q"]) -> Int[Tensor, "batch Q"]:
        """The token with the largest logit at each position, some sequences at a time."""
        rows = max(1, ENTRIES_AT_ONCE // (positions.shape[1] * self.vocab_size))
        parts = zip(tokens.split(rows), positions.split(rows), strict=True)
        return torch.cat([self.answer(some, asked).argmax(dim=-1) for some, asked in parts])

    def _answer(self, tokens: Tensor, positions: Tensor, first: Tensor) -> Tensor:
        if self.generator.device != tokens.device:
            self.generator = torch.Generator(tokens.device).manual_seed(self.seed)
        store = StateRounding(self.precision, self.generator, first)
        return self.model.require(StepsState).answer_stored(tokens, positions, store)
