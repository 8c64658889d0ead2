"""MesaNet: a memory that is read by least squares, solved exactly at every place that asks.

Departs: the published layer solves by conjugate gradients.
"""

import math
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import softplus

from recallscope.architectures.matrix_memory import MesaNetSpec
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, Gate, Update
from recallscope.ops.mesa import mesa_scan

RIDGE = 0.3  # what is learnt of lambda, at the start


@final
class MesaNetLayer(DeltaLayer):
    """S <- α S + β k vᵀ, H <- α H + β k kᵀ, read as Sᵀ (H + diag(λ))⁻¹ q."""

    spec: MesaNetSpec

    def __init__(self, spec: MesaNetSpec) -> None:
        super().__init__(spec)
        self.log_ridge = nn.Parameter(torch.zeros(spec.num_heads, spec.state_dim))

    def gates(self) -> dict[str, Gate]:
        """β before its sigmoid; α before its softplus, if the state fades."""
        beta = {"beta": Gate(1, self.spec.write_bias)}
        return beta | ({"alpha": Gate(1, self.spec.fade_bias)} if self.spec.forget else {})

    def update(self, drive: Drive) -> Update:
        """S and H are one state: keys are further values."""
        q, k, v, gates = drive
        alpha = torch.exp(-softplus(gates["alpha"])) if self.spec.forget else None
        return Update(q, torch.sigmoid(gates["beta"]) * k, torch.cat((v, k), dim=-1), alpha)

    def scan(self, update: Update, positions: Int[Tensor, "batch Q"] | None) -> Float[Tensor, "batch Q M P"]:
        """Least squares."""
        q, k, both, w, *_ = update
        v, keys = both.split([both.shape[-1] - k.shape[-1], k.shape[-1]], dim=-1)
        return mesa_scan(q, k, v, keys, self.spec.least_ridge + self.log_ridge.exp(), w, positions=positions)

    def read_state(self, update: Update, state: Float[Tensor, "batch M P_all N"], t: int) -> Float[Tensor, "batch M P"]:
        """Least squares: the first rows of the state are S, the last H."""
        N = state.shape[-1]
        H = state[..., -N:, :] + torch.diag_embed(self.spec.least_ridge + self.log_ridge.exp())
        return (state[..., :-N, :] @ torch.linalg.solve(H, update.q[:, t])[..., None]).squeeze(-1)

    def draw_weights(self, generator: torch.Generator) -> None:
        """The ridge starts at .3."""
        super().draw_weights(generator)
        nn.init.constant_(self.log_ridge, math.log(RIDGE))
