"""Kimi Delta Attention: Gated DeltaNet whose rows fade each at its own rate.

Departs: the projections of α and of the output gate have full rank; the published ones go through P channels.
"""

from typing import final

from recallscope.architectures.gated_delta_net_model import GatedDeltaNetLayer
from recallscope.architectures.matrix_memory_model import MemoryModel


class KDALayer(GatedDeltaNetLayer):
    """S <- diag(α) S, then S <- S + β k (v - Sᵀ k)ᵀ."""

    @property
    def fading_width(self) -> int:
        """An α for every row."""
        return self.spec.state_dim


@final
class KDA(MemoryModel):
    """Kimi Delta Attention."""

    layer = KDALayer
