"""Mamba-3: the trapezoid rule writes every token in two parts, and rotations stand for a complex state.

Written from the equations of arXiv 2603.15569; Δ, A, λ and the angles π tanh(θ) Δ are those of state-spaces/mamba
(mamba_ssm/modules/mamba3.py, read and not run: its kernels need a GPU). Checked against a plain complex recurrence in
tests/architectures/test_reference_layers.py, which is ours: nobody else's code stands behind this architecture here.

Departs: one value per write (SISO). Every head has its own k, q and angles, where the published ones share them. Δ and
A start at constants. Rows n and n + A turn together for A angles, in the published layer rows 2n and 2n + 1.
"""

import math
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import pad, softplus

from recallscope.architectures.matrix_memory import Mamba3Spec, inverse_softplus
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, Gate, Update, heads_at
from recallscope.ops.rotary import turned


@final
class Mamba3Layer(DeltaLayer):
    """S <- α S + (1 - λ) Δ α k' v'ᵀ + λ Δ k vᵀ, α = exp(-A Δ); q and k turn by the sum of all angles so far."""

    spec: Mamba3Spec

    def __init__(self, spec: Mamba3Spec) -> None:
        super().__init__(spec)
        M, N, normed = spec.num_heads, spec.state_dim, spec.qk_norm == "rms"
        self.norm_q, self.norm_k = (nn.RMSNorm(N, eps=1e-5) if normed else nn.Identity() for _ in range(2))
        self.q_bias, self.k_bias = (nn.Parameter(torch.zeros(M, N)) if normed else None for _ in range(2))
        self.skip = nn.Parameter(torch.zeros(M, 1)) if spec.skip else None

    def gates(self) -> dict[str, Gate]:
        """Δ and A before their softplus, λ before its sigmoid, the angles before their tanh."""
        start = self.spec.step_start
        found = {"step": Gate(1, inverse_softplus(start))}
        found["rate"] = Gate(1, inverse_softplus(-math.log(self.spec.forget_start) / start))
        if self.spec.trapezoid:
            found["mix"] = Gate(1, 0.0)
        return found | ({"turn": Gate(self.spec.num_angles, 0.0)} if self.spec.num_angles else {})

    def prepared(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Drive:
        """Norm, bias and rotation of queries and keys."""
        q, k, _, gates = drive
        if self.q_bias is not None and self.k_bias is not None:
            q, k = (self.norm_q(q) + self.q_bias) * self.spec.state_dim**-0.5, self.norm_k(k) + self.k_bias
        if "turn" in gates:
            angles = (math.pi * torch.tanh(gates["turn"]) * softplus(gates["step"])).cumsum(dim=1)
            q, k = turned(q, heads_at(angles, positions)), turned(k, angles)
        return drive._replace(q=q, k=k)

    def update(self, drive: Drive) -> Update:
        """First what is left of the token before, which fades with the state, then this token's own part."""
        q, k, v, gates = drive
        step = softplus(gates["step"])
        alpha = torch.exp(-softplus(gates["rate"]) * step)
        if not self.spec.trapezoid:
            return Update(q, step * k, v, alpha)
        mix = torch.sigmoid(gates["mix"])

        def both(late: Tensor, own: Tensor) -> Tensor:
            return torch.stack((late, own), dim=2).flatten(1, 2)

        k_before, v_before = (pad(x[:, :-1], (0, 0, 0, 0, 1, 0)) for x in (k, v))
        writes = both((1 - mix) * step * alpha * k_before, mix * step * k)
        return Update(q, writes, both(v_before, v), both(alpha, torch.ones_like(alpha)), per_token=2)

    def after_scan(
        self,
        o: Float[Tensor, "batch Q M P_all"],
        drive: Drive,
        update: Update,
        positions: Int[Tensor, "batch Q"] | None,
    ) -> Float[Tensor, "batch Q M P"]:
        """The skip."""
        if self.skip is None:
            return o
        return o + self.skip * heads_at(drive.v, positions)

    def why_not_edited(self) -> str | None:
        """A write is not one token's."""
        if self.spec.trapezoid or self.spec.num_angles:
            return "a fact is written in two parts, and under a key that turns with the text before it"
        return None

    def draw_weights(self, generator: torch.Generator) -> None:
        """Biases and skip start at 1, as published."""
        super().draw_weights(generator)
        for weight in (self.q_bias, self.k_bias, self.skip):
            if weight is not None:
                nn.init.ones_(weight)
