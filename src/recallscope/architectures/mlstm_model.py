"""mLSTM, the matrix memory of xLSTM: an exponential write gate, a forget gate, and a normaliser.

Departs: values go through the convolution as queries and keys do; gates are not soft-capped.
"""

from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import logsigmoid, pad

from recallscope.architectures.matrix_memory import MLSTMSpec, logit
from recallscope.architectures.matrix_memory_model import DeltaLayer, Drive, Gate, MemoryModel, Update, heads_at

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


@final
class MLSTM(MemoryModel):
    """mLSTM."""

    layer = MLSTMLayer
