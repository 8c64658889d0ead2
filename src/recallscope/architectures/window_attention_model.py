"""Sliding-window attention: softmax attention to the last tokens only."""

from typing import final

from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.attention_model import SoftmaxAttention, SoftmaxLayer
from recallscope.architectures.matrix_memory import WindowAttentionSpec
from recallscope.architectures.matrix_memory_model import Drive
from recallscope.ops.attention import softmax_attention


@final
class WindowLayer(SoftmaxLayer):
    """o_t = Σ_τ softmax_τ(kᵀ_τ q_t) v_τ over t - w < τ <= t."""

    spec: WindowAttentionSpec
    no_state = "a window keeps the last keys and values as they are: its memory is no matrix that facts share"

    def recall(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Float[Tensor, "batch Q M P"]:
        """The last w keys and values, the token's own included."""
        return softmax_attention(drive.q, drive.k, drive.v, positions=positions, window=self.spec.window)


@final
class WindowAttention(SoftmaxAttention):
    """Sliding-window attention."""

    layer = WindowLayer
