"""RWKV-7: decay, learning rate and removal key are vectors.

Departs: gates are linear in the token (published: low-rank MLPs, and a shift for the output gate, too), values of the
first layer are not mixed into later ones, and what a head reads goes through an RMSNorm without a mean to subtract,
after the bonus is added (published: before).
"""

import math
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import normalize

from recallscope.architectures.matrix_memory import RWKV7Spec, logit
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, Gate, Update, heads_at

FASTEST = 0.606531  # e^-1/2: log w is -FASTEST times a sigmoid


@final
class RWKV7Layer(DeltaLayer):
    """S <- diag(w) S - (a ⊙ κ) (κᵀ S) + k (1 + (a - 1) ⊙ k_a) vᵀ, κ the unit vector of k ⊙ k_k."""

    spec: RWKV7Spec

    def __init__(self, spec: RWKV7Spec) -> None:
        super().__init__(spec)
        heads = (spec.num_heads, spec.state_dim)
        self.k_k, self.k_a = (nn.Parameter(torch.zeros(heads)) for _ in range(2))
        self.r_k = nn.Parameter(torch.zeros(heads)) if spec.bonus else None

    def gates(self) -> dict[str, Gate]:
        """w and a before their sigmoids."""
        rate = -math.log(self.spec.forget_start)
        N = self.spec.state_dim
        return {"w": Gate(N, logit(min(rate / FASTEST, 0.999))), "a": Gate(N, self.spec.write_bias)}

    def update(self, drive: Drive) -> Update:
        """w = exp(-0.6065 sigmoid(.))."""
        q, k, v, gates = drive
        w, a = torch.exp(-FASTEST * torch.sigmoid(gates["w"])), torch.sigmoid(gates["a"])
        kappa = normalize(k * self.k_k, dim=-1)
        return Update(q, k * (1 + (a - 1) * self.k_a), v, w, kappa, -a * kappa)

    def after_scan(
        self,
        o: Float[Tensor, "batch Q M P_all"],
        drive: Drive,
        update: Update,
        positions: Int[Tensor, "batch Q"] | None,
    ) -> Float[Tensor, "batch Q M P"]:
        """The bonus."""
        if self.r_k is None:
            return o
        k, v = (heads_at(x, positions) for x in (update.k * self.r_k, update.v))
        return o + (update.q * k).sum(dim=-1, keepdim=True) * v

    def draw_weights(self, generator: torch.Generator) -> None:
        """As published: κ starts as the direction of k, the rate acts in full on the key, no bonus."""
        super().draw_weights(generator)
        with torch.no_grad():
            self.k_k.fill_(1.0)
            self.k_a.fill_(1.0)
