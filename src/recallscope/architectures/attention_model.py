"""Softmax attention, the reference that keeps everything; with `rotary` and `mlp_width` it is a layer of Llama.

Without positions a window of two tokens is what recall needs: it tells a value which key stood before it.
"""

from typing import final

from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.capabilities import HasState
from recallscope.architectures.matrix_memory import AttentionSpec
from recallscope.architectures.matrix_memory_model import Drive, MemoryLayer, MemoryModel, rotated
from recallscope.ops.attention import softmax_attention


@final
class SoftmaxLayer(MemoryLayer):
    """o_t = Σ_τ softmax_τ(kᵀ_τ q_t) v_τ."""

    spec: AttentionSpec

    def placed(
        self, q: Float[Tensor, "batch Q M N"], k: Float[Tensor, "batch L M N"], positions: Int[Tensor, "batch Q"] | None
    ) -> tuple[Float[Tensor, "batch Q M N"], Float[Tensor, "batch L M N"]]:
        """Turned by their positions, if the spec says so."""
        return rotated(self.spec, q, k, positions)

    def recall(self, drive: Drive, positions: Int[Tensor, "batch Q"] | None) -> Float[Tensor, "batch Q M P"]:
        """All keys and values so far are looked at."""
        return softmax_attention(drive.q, drive.k, drive.v, positions=positions)

    def state(self, drive: Drive) -> None:
        """None: it grows."""
        return


@final
class SoftmaxAttention(MemoryModel):
    """Softmax attention."""

    layer = SoftmaxLayer

    def why_not(self, protocol: type) -> str | None:
        """There is no state of a fixed size."""
        if protocol is HasState:
            return "softmax attention keeps every key and value: its memory grows, and is no matrix of a fixed size"
        return super().why_not(protocol)
