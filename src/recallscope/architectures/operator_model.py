"""Models that are fixed operators on tokens: nothing fades, facts have codes of their own, weights may be rotated."""

import copy
from abc import abstractmethod
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from recallscope.architectures.capabilities import FactCodes, Symbols, WritesFacts
from recallscope.architectures.operators import Operators, blocks
from recallscope.architectures.outer_products import OuterProductLayer, OuterProductModel
from recallscope.architectures.rotations import random_rotation, random_scales


class OperatorLayer(OuterProductLayer):
    """A layer without anything but fixed linear maps around the meeting of keys and queries."""

    S_B: nn.Parameter
    S_C: nn.Parameter
    P_out: nn.Parameter

    @abstractmethod
    def operators(self, code: Float[Tensor, "D T"]) -> tuple[Operators, ...]:
        """One `Operators` per head. `code` names the symbols: E for tokens, the identity for the residual stream.

        Paper: Eq. 9 (`eq:proj-opertators`); heads as in Alg. 4 (`alg:mamba-2`).
        """

    @abstractmethod
    def rotate(self, Q: Float[Tensor, "D D"], generator: torch.Generator, spread: float) -> None:
        """Other weights for the same function, in a residual stream that was rotated by Q."""

    def rotate_state(self, generator: torch.Generator, spread: float) -> None:
        """One R and one c for all heads, as some patterns share keys or queries between them."""
        R = random_rotation(self.S_B.shape[-2], generator, self.S_B)
        c = random_scales(1, generator, spread, R)
        joint = random_scales(1, generator, spread, R)
        self.S_B.copy_(c * (R @ self.S_B))
        self.S_C.copy_((R @ self.S_C) / (c * joint))
        self.P_out.mul_(joint)


class OperatorModel(OuterProductModel):
    """Such layers: HasOperators, WritesFacts and HasRotations, beside what all sums of outer products have."""

    layers: Sequence[OperatorLayer]

    @property
    def residual(self) -> bool:
        """Whether each layer adds its input to its output."""
        return bool(getattr(self.spec, "residual", False))

    @torch.no_grad()
    def operators(self, symbols: Symbols = "tokens") -> tuple[tuple[Operators, ...], ...]:
        """The operators of every head of every layer, on tokens or on the axes of the residual stream.

        In layers above the first, operators on tokens describe the direct path: the layer reads the part of the
        residual stream that still is the embedding, and what it writes goes to the head as it is.

        Paper: Eq. 9 (`eq:proj-opertators`); layers as in Thm G.1 (`app-thm:multi-layer-recall`).
        """
        E = self.E.detach()
        code = E if symbols == "tokens" else torch.eye(len(E), dtype=E.dtype, device=E.device)
        return tuple(layer.operators(code) for layer in self.layers)

    def fact_codes(self) -> tuple[FactCodes, ...]:
        """v' and k' from the operators. A window of more than two tokens holds a fact several times, once per place."""
        return tuple(_codes_of(heads) for heads in self.operators())

    @torch.no_grad()
    def rotated(self, generator: torch.Generator, *, spread: float = 0.5) -> "OperatorModel":
        """An equivalent copy: every freedom below is drawn at random.

        - E -> QᵀE, P_in -> P_in Q, P_out -> QᵀP_out, with one rotation Q for all layers, as they share the stream;
        - inner channels are permuted and scaled, by exp(`spread` x normal), signs flipped: a depthwise convolution
          allows no more. What is scaled on the way in is scaled back on every way out;
        - S_B -> R S_B, S_C -> R S_C with a rotation R of the state, and S_B -> c S_B, S_C -> S_C / c;
        - P_out -> c P_out, S_C -> S_C / c: the one that reaches G_vv and G_kq, as the factor `fix_scale` fixes.

        Paper: Sec. 3.2 (`par:equiv-recall`).
        Departs: the print has Q alone. Any invertible matrix would do for Q and, with its inverse transposed, for R.
        """
        rotated = copy.deepcopy(self)
        Q = random_rotation(len(self.E), generator, self.E)
        rotated.E.copy_(Q.T @ self.E)
        for layer in rotated.layers:
            layer.rotate(Q, generator, spread)
        return rotated

    def why_not(self, protocol: type) -> str | None:
        """Windows of one token hold no fact."""
        if protocol is WritesFacts and self.spec.conv_width < 2:
            return "conv_width=1: no window holds a key and its value, so no fact is written. Use conv_width >= 2"
        return super().why_not(protocol)


def _codes_of(heads: Sequence[Operators]) -> FactCodes:
    """The key stands one place before its value."""
    values = [blocks(head.Pi_v_in, head.size)[1:].mT for head in heads]  # places V P
    keys = [blocks(head.Pi_k_in, head.size)[:-1].mT for head in heads]
    return FactCodes(torch.stack(values, dim=2), torch.stack(keys, dim=2))
