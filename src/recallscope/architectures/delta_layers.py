"""The delta rule, S <- S + β k (v - Sᵀ k)ᵀ with unit keys, and its relatives.

Departs: A_log starts at 0 and the bias of a fading gate where α is `forget_start`; published layers draw both as
Mamba-2 does. Projections of α and of the output gate have full rank; those of KDA and Gated DeltaNet-2 go through P
channels.
"""

import math
from typing import final

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn.functional import softplus

from recallscope.architectures.matrix_memory import CombaSpec, DeltaNetSpec, DeltaProductSpec, GatedDeltaNetSpec
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, Gate, Update, heads_at
from recallscope.ops.delta_scan import delta_scan


@final
class DeltaNetLayer(DeltaLayer):
    """S <- S + β k (v - Sᵀ k)ᵀ."""

    spec: DeltaNetSpec

    def gates(self) -> dict[str, Gate]:
        """β, before its sigmoid."""
        return {"beta": Gate(1, self.spec.write_bias)}

    def update(self, drive: Drive) -> Update:
        """What k held is read, and taken away as far as the new value is written."""
        q, k, v, gates = drive
        write = torch.sigmoid(gates["beta"]) * k
        return Update(q, write, v, a=k, b=-write)


def fade(A_log: Tensor, gate: Tensor) -> Tensor:
    """α = exp(-exp(A_log) softplus(gate))."""
    return torch.exp(-A_log.exp() * softplus(gate))


class GatedDeltaNetLayer(DeltaLayer):
    """S <- α S, then S <- S + β k (v - Sᵀ k)ᵀ."""

    spec: GatedDeltaNetSpec

    def __init__(self, spec: GatedDeltaNetSpec) -> None:
        super().__init__(spec)
        self.A_log = nn.Parameter(torch.zeros(spec.num_heads, 1))

    @property
    def fading_width(self) -> int:
        """How many α a head has: one for the whole state."""
        return 1

    def gates(self) -> dict[str, Gate]:
        """β before its sigmoid, α before its softplus."""
        return {"beta": Gate(1, self.spec.write_bias), "alpha": Gate(self.fading_width, self.spec.fade_bias)}

    def update(self, drive: Drive) -> Update:
        """The delta rule reads what is left: aᵀ S = (α k)ᵀ S."""
        q, k, v, gates = drive
        alpha = fade(self.A_log, gates["alpha"])
        write = torch.sigmoid(gates["beta"]) * k
        return Update(q, write, v, alpha, alpha * k, -write)


class KDALayer(GatedDeltaNetLayer):
    """S <- diag(α) S, then S <- S + β k (v - Sᵀ k)ᵀ."""

    @property
    def fading_width(self) -> int:
        """An α for every row."""
        return self.spec.state_dim


@final
class GatedDeltaNet2Layer(KDALayer):
    """S <- diag(α) S, then S <- S + k (w ⊙ v - Sᵀ (b ⊙ k))ᵀ."""

    def gates(self) -> dict[str, Gate]:
        """b and w before their sigmoids, α before its softplus."""
        start, N, P = self.spec.write_bias, self.spec.state_dim, self.spec.head_dim
        return {"erase": Gate(N, start), "write": Gate(P, start), "alpha": Gate(N, self.spec.fade_bias)}

    def prepared(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Drive:
        """The mean of w goes with the key, as β does in KDA; what differs between channels goes with the value."""
        w = torch.sigmoid(drive.gates["write"])
        mean = w.mean(dim=-1, keepdim=True)
        return drive._replace(v=w / mean * drive.v, gates=drive.gates | {"write": mean})

    def update(self, drive: Drive) -> Update:
        """Erased is what b ⊙ k reads."""
        q, k, v, gates = drive
        alpha = fade(self.A_log, gates["alpha"])
        return Update(q, gates["write"] * k, v, alpha, alpha * torch.sigmoid(gates["erase"]) * k, -k)


@final
class CombaLayer(GatedDeltaNetLayer):
    """S <- α S, then S <- S + β k (v - Sᵀ p)ᵀ with p = s k, s = sigmoid(.) per head; read with q - d p.

    Departs: s scales unit keys, as in the paper; fla's layer makes p = s k a unit vector again, which undoes s.
    """

    spec: CombaSpec

    def __init__(self, spec: CombaSpec) -> None:
        super().__init__(spec)
        self.erase = nn.Parameter(torch.zeros(spec.num_heads, 1))
        self.correction = nn.Parameter(torch.zeros(spec.num_heads, 1)) if spec.output_correction else None

    def prepared(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Drive:
        """The corrected queries, scaled as queries are."""
        if self.correction is None:
            return drive
        p = torch.sigmoid(self.erase) * heads_at(drive.k, positions)
        return drive._replace(q=drive.q - self.correction * p * self.spec.state_dim**-0.5)

    def update(self, drive: Drive) -> Update:
        """Gated DeltaNet, but p reads what is taken away."""
        plain = super().update(drive)
        assert plain.a is not None
        return plain._replace(a=torch.sigmoid(self.erase) * plain.a)

    def draw_weights(self, generator: torch.Generator) -> None:
        """s starts at sigmoid(1), d where the spec says."""
        super().draw_weights(generator)
        nn.init.ones_(self.erase)
        if self.correction is not None:
            nn.init.constant_(self.correction, self.spec.output_correction)


@final
class DeltaProductLayer(DeltaLayer):
    """S <- α S, then S <- S + β k (v - Sᵀ k)ᵀ for each of a token's steps; α = 1 unless the spec has it forget."""

    spec: DeltaProductSpec

    def __init__(self, spec: DeltaProductSpec) -> None:
        super().__init__(spec)
        self.A_log = nn.Parameter(torch.zeros(spec.num_heads, 1)) if spec.forget else None

    def gates(self) -> dict[str, Gate]:
        """β of every step before its sigmoid; α before its softplus, if the state fades."""
        beta = {"beta": Gate(self.spec.num_steps, self.spec.write_bias)}
        return beta | ({"alpha": Gate(1, self.spec.fade_bias)} if self.spec.forget else {})

    def update(self, drive: Drive) -> Update:
        """The steps one after another; only the first finds the state faded."""
        q, k, v, gates = drive
        n = self.spec.num_steps

        def by_step(x: Tensor) -> Tensor:
            """(batch, L, M, n width) to (batch, n L, M, width)."""
            return x.unflatten(-1, (n, -1)).transpose(2, 3).flatten(1, 2)

        k, v, w = by_step(k), by_step(v), None
        write = self.spec.largest_rate * torch.sigmoid(by_step(gates["beta"])) * k
        if self.A_log is not None:
            alpha = fade(self.A_log, gates["alpha"])
            w = by_step(torch.cat((alpha, torch.ones_like(alpha).expand(*alpha.shape[:-1], n - 1)), dim=-1))
        return Update(q, write, v, w, k if w is None else w * k, -write, n)

    def why_not_edited(self) -> str | None:
        """A token is more than one fact."""
        return "a token makes several steps of the delta rule: what it leaves is not one value under one key"


LARGEST, EPS, SCALE = 1.5, 1e-6, -0.2  # factors lie between 1/1.5 and 1.5, and are 1 where log h is -.2 at the start


@final
class PreconditionedDeltaNetLayer(GatedDeltaNetLayer):
    """h <- α' h + β' k²; S <- α S, then S <- S + β (m(h) ⊙ k) (v - Sᵀ k)ᵀ, m falling with h from 1.5 to 1/1.5.

    Departs: the start of both fading gates is that of Gated DeltaNet here.
    """

    def __init__(self, spec: GatedDeltaNetSpec) -> None:
        super().__init__(spec)
        self.curvature_A_log = nn.Parameter(torch.zeros(spec.num_heads, 1))
        self.log_scale = nn.Parameter(torch.zeros(spec.num_heads, 1))

    def gates(self) -> dict[str, Gate]:
        """Rate and fading of h start as those of S."""
        write, fading = Gate(1, self.spec.write_bias), Gate(1, self.spec.fade_bias)
        return {"beta": write, "alpha": fading, "curvature_beta": write, "curvature_alpha": fading}

    def update(self, drive: Drive) -> Update:
        """h is a state of one row, and comes from the same scan."""
        plain, k, gates = super().update(drive), drive.k, drive.gates
        one = torch.ones_like(gates["beta"])
        moved = torch.sigmoid(gates["curvature_beta"]) * k.square()
        h = delta_scan(one, one, moved, fade(self.curvature_A_log, gates["curvature_alpha"]))
        r = torch.log(h + EPS) - self.log_scale
        m = torch.exp(-math.log(LARGEST) * r / (1 + r.abs()))
        assert plain.b is not None
        return plain._replace(k=m * plain.k, b=m * plain.b)

    def why_not_edited(self) -> str | None:
        """h scales every write."""
        return "a key is scaled by the keys before it: what a fact leaves in the state depends on them"

    def draw_weights(self, generator: torch.Generator) -> None:
        """The scale starts at -.2."""
        super().draw_weights(generator)
        nn.init.constant_(self.log_scale, SCALE)
