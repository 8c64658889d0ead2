"""Memories that fade: RetNet at a fixed rate per head, GLA and mLSTM at rates that the token decides.

Departs: the projection of the gate of GLA has full rank, the published one has rank 16. Gates of mLSTM are not
soft-capped.
"""

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from recallscope.architectures.matrix_memory import GLASpec, MLSTMSpec, RetNetSpec, logit
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, Gate, Update, heads_at, rotated


@final
class RetNetLayer(DeltaLayer):
    """S <- γ S + k vᵀ."""

    spec: RetNetSpec

    def prepared(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Drive:
        """Turned by their positions, if the spec says so."""
        return rotated(self.spec, drive, positions)

    def why_not_edited(self) -> str | None:
        """A turned key is another one at every position."""
        return "with rotary a fact is written under another key at every position" if self.spec.rotary else None

    def update(self, drive: Drive) -> Update:
        """γ = 1 - 2^-(5+h)."""
        q, k, v, _ = drive
        heads = torch.arange(self.spec.num_heads, dtype=k.dtype, device=k.device)
        gamma = 1 - torch.exp2(-self.spec.slowest - heads)
        return Update(q, k, v, gamma[:, None].expand(*k.shape[:3], 1))


@final
class GLALayer(DeltaLayer):
    """S <- diag(α) S + k vᵀ."""

    spec: GLASpec

    def gates(self) -> dict[str, Gate]:
        """α, before its log-sigmoid."""
        return {"alpha": Gate(self.spec.state_dim, logit(self.spec.forget_start**self.spec.gate_temper))}

    def update(self, drive: Drive) -> Update:
        """log α = logsigmoid(.) / 16."""
        q, k, v, gates = drive
        return Update(q, k, v, torch.exp(logsigmoid(gates["alpha"]) / self.spec.gate_temper))


EPS = 1e-6  # added to what is divided by


def running_max(
    write: Float[Tensor, "batch L M 1"], log_forget: Float[Tensor, "batch L M 1"]
) -> Float[Tensor, "batch L M 1"]:
    """m_t = max(log f_t + m_{t-1}, ĩ_t), from m = 0: states divided by e^m neither overflow nor vanish."""
    since_start = log_forget.cumsum(dim=1)
    highest = (write - since_start).cummax(dim=1).values
    return since_start + highest.clamp(min=0.0)


@final
class MLSTMLayer(DeltaLayer):
    """S <- f S + i k vᵀ, n <- f n + i k, read as Sᵀ q / max(|nᵀ q|, 1)."""

    spec: MLSTMSpec

    def gates(self) -> dict[str, Gate]:
        """log i, and f before its sigmoid."""
        return {"i": Gate(1, 0.0), "f": Gate(1, logit(self.spec.forget_start))}

    def update(self, drive: Drive) -> Update:
        """State and normaliser divided by e^m; the normaliser is the state of one more value, which is always 1."""
        q, k, v, gates = drive
        log_f = logsigmoid(gates["f"])
        m = running_max(gates["i"], log_f)
        before = pad(m[:, :-1], (0, 0, 0, 0, 1, 0))
        values = pad(v, (0, 1), value=1.0) if self.spec.normaliser else v
        return Update(q, torch.exp(gates["i"] - m) * k, values, torch.exp(log_f + before - m))

    def why_not_edited(self) -> str | None:
        """Nothing else stands in the way."""
        return "its state is divided by the largest gate so far: what a fact leaves in it depends on what came before"

    def after_scan(
        self,
        o: Float[Tensor, "batch Q M P_all"],
        drive: Drive,
        update: Update,
        positions: Int[Tensor, "batch Q"] | None,
    ) -> Float[Tensor, "batch Q M P"]:
        """e^m is put back, or divided by with the normaliser."""
        m = running_max(drive.gates["i"], logsigmoid(drive.gates["f"]))
        m = heads_at(m, positions)
        if not self.spec.normaliser:
            return o * torch.exp(m)
        return o[..., :-1] / (torch.maximum(o[..., -1:].abs(), torch.exp(-m)) + EPS)
