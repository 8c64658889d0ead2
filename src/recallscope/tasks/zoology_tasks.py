"""Two more tasks of zoology: facts that are updated, and keys of two tokens that form a grid."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from recallscope.specs import Positive, Size, Steps, TaskSpec, task
from recallscope.tasks.associative_recall import AssociativeRecall

if TYPE_CHECKING:
    import torch

    from recallscope.tasks.batch import Batch


@task("forgetting_mqar")
class ForgettingMQAR(AssociativeRecall):
    """MQAR in which some keys are written once more, with another value, after all facts; the last value is asked.

    As zoology draws it, the new value of the j-th update differs from the value of the j-th fact, whichever fact it
    updates: it may repeat the old value of its own key.
    """

    num_updates: Steps = Field(4, description="keys that are written again with a new value; at most N_f")

    @model_validator(mode="before")
    @classmethod
    def _length_follows_from_the_facts(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("length") is None:
            N_f, updates = data.get("num_facts"), data.get("num_updates", 4)
            return {**data, "length": 4 * N_f + 2 * updates if isinstance(N_f, int) and isinstance(updates, int) else 1}
        return data

    def _check_length(self) -> None:
        N_f, L = self.num_facts, self.length
        if self.num_updates > N_f:
            raise ValueError(
                f"num_updates={self.num_updates} is above num_facts={N_f}: a key is updated once at most. "
                f"Use num_updates <= {N_f}."
            )
        least = 4 * N_f + 2 * self.num_updates
        if L % 2 or least > L:
            raise ValueError(
                f"length={L}: facts, updates and one slot per query, two tokens each, take an even length >= 4 "
                f"num_facts + 2 num_updates = {least}. Use length={max(L + L % 2, least)}."
            )

    @property
    def context_length(self) -> int:
        """Tokens before the queries, 2 (N_f + updates)."""
        return 2 * (self.num_facts + self.num_updates)

    def levels(self) -> tuple[AssociativeRecall, ...]:
        """No easier ones."""
        return (self,)

    def draw(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Independent sequences of the task, on the generator's device."""
        from recallscope.tasks.drawing import draw_updates

        return draw_updates(self, batch_size, generator)


@task("compositional_mqar")
class CompositionalMQAR(TaskSpec):
    """MQAR with keys of two tokens: all cells of a square grid, in random order, each with a value of its own.

    Neither token tells the value, and the keys of a context are correlated (see `template_mqar`, which has tables of
    any shape and no filler). A memory must see a key and its value in one window: a single layer needs conv_width = 3.
    """

    FOLLOWING = ("length",)
    key_tokens: ClassVar[int] = 2
    vocab_size: Size = Field(
        description="V: first tokens are 1..V/3-1, second ones V/3..2V/3-1, values 2V/3..V-1, rounded down"
    )
    num_facts: Size = Field(description="N_f, cells of the grid: a square number")
    length: Size = Field(description="L, tokens in a sequence, even; 6 N_f unless given")
    power_a: Positive = Field(1.0, description="query slot g is drawn with weight (g+1)^(power_a-1); 1 is uniform")
    filler: Literal["random", "zero"] = Field("random", description="what fills the gaps: any token, or 0")

    @model_validator(mode="before")
    @classmethod
    def _length_follows_from_the_facts(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("length") is None:
            N_f = data.get("num_facts")
            return {**data, "length": max(6 * N_f, 1) if isinstance(N_f, int) else 1}
        return data

    @model_validator(mode="after")
    def _the_grid_fits(self) -> CompositionalMQAR:
        V, N_f, L, side = self.vocab_size, self.num_facts, self.length, self.side
        if side**2 != N_f:
            raise ValueError(
                f"num_facts={N_f} is not a square number: keys are all cells of a square grid. Use num_facts="
                f"{side**2} or {(side + 1) ** 2}, or template_mqar with rows and columns."
            )
        if side > V // 3 - 1 or N_f > V - 2 * (V // 3):
            raise ValueError(
                f"vocab_size={V} leaves {V // 3 - 1} first tokens and {V - 2 * (V // 3)} values, and num_facts={N_f} "
                f"needs {side} and {N_f}. Use vocab_size >= {3 * max(N_f, side + 1)}."
            )
        if L % 2 or 6 * N_f > L:
            raise ValueError(
                f"length={L}: every fact takes three tokens, and so does every query, so an even length >= 6 num_facts "
                f"= {6 * N_f} is needed. Use length={max(L + L % 2, 6 * N_f)}."
            )
        return self

    @property
    def side(self) -> int:
        """Rows of the grid, and columns."""
        return math.isqrt(self.num_facts)

    @property
    def context_length(self) -> int:
        """Tokens of the facts section, 3 N_f."""
        return 3 * self.num_facts

    @property
    def sequence_length(self) -> int:
        """L."""
        return self.length

    @property
    def num_queries(self) -> int:
        """Questions asked in one sequence: every fact once."""
        return self.num_facts

    @property
    def drawn_slots(self) -> int:
        """Places where a query may stand."""
        return (self.length - self.context_length) // 3

    def draw(self, batch_size: int, generator: torch.Generator) -> Batch:
        """Independent sequences of the task, on the generator's device."""
        from recallscope.tasks.drawing import draw_grid

        return draw_grid(self, batch_size, generator)
