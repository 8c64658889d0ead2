"""Softmax attention, the reference that keeps everything; with `rotary` and `mlp_width` it is a layer of Llama.

Without positions a window of two tokens is what recall needs: it tells a value which key stood before it.
"""

from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.matrix_memory import AttentionSpec
from recallscope.architectures.matrix_memory_model import Drive, MemoryLayer, MemoryModel, rotated
from recallscope.ops.attention import softmax_attention


class SoftmaxLayer(MemoryLayer):
    """o_t = Σ_τ softmax_τ(kᵀ_τ q_t) v_τ."""

    spec: AttentionSpec

    def prepared(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Drive:
        """Turned by their positions, if the spec says so."""
        return rotated(self.spec, drive, positions)

    def recall(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Float[Tensor, "batch Q M P"]:
        """All keys and values so far are looked at."""
        return softmax_attention(drive.q, drive.k, drive.v, positions=positions)

    def state(self, drive: Drive) -> None:
        """None: it grows."""
        return


class SoftmaxAttention(MemoryModel):
    """Softmax attention."""

    layer = SoftmaxLayer
