"""The recurrence of one layer, token by token: the plain loop, for states that are changed on the way."""

from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor

from recallscope.architectures.capabilities import Step, Stored


@dataclass(frozen=True)
class Steps:
    """The memory of one layer while it reads some sequences, and what follows it in the layer."""

    empty: Float[Tensor, "batch #heads P N"]
    """the state before the first token"""
    length: int
    after: Callable[[Tensor, int], Float[Tensor, "batch #heads P N"]]
    """the state after token t, from the one before it"""
    read: Callable[[Tensor, int], Float[Tensor, "batch heads P_read"]]
    """what the heads read of a state at token t"""
    kept: Callable[[int], Float[Tensor, "batch #heads"]]
    """share of the state's power that token t leaves"""
    finish: Callable[[Tensor], Float[Tensor, "batch L D"]]
    """the layer's output, from what the heads read after every token"""

    def run(
        self, layer: int, store: Callable[[Step], Stored], asked: Container[int] | None = None
    ) -> Float[Tensor, "batch L D"]:
        """The layer with every state passed through `store`; nothing is read at tokens that are not `asked` about."""
        state, found, nothing = self.empty, [], self.read(self.empty, 0)
        for t in range(self.length):
            state, shown = store(Step(layer, t, self.after(state, t), partial(self.kept, t)))
            found.append(self.read(shown, t) if asked is None or t in asked else nothing)
        return self.finish(torch.stack(found, dim=1))
