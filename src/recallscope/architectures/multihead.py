"""Spec of the simplified Mamba-2."""

from __future__ import annotations

from pydantic import Field

from recallscope.architectures.sizes import Heads
from recallscope.specs import HeadPattern, Size, architecture


@architecture("multihead")
class MultiHeadSpec(Heads):
    """Simplified Mamba-2 (Alg. 4, `alg:mamba-2`).

    Departs: the printed algorithm splits D channels into heads, the published experiments split the expanded
        width. `expand` says which: 1 as printed, 2 as published.
    """

    model = "recallscope.architectures.multihead_model:MultiHeadMamba"
    law = "trained-sharing-heads"
    head_pattern: HeadPattern = Field(
        description="what the heads share (Tab. 5): MHA nothing, MQA x and B, MKA x and C, MVA B and C"
    )
    expand: Size = Field(2, description="channels split into heads, over D: 1 as printed, 2 as published")

    def work_per_token(self) -> float:
        """Every head has keys and queries of its own."""
        return float(self.inner_dim * (self.embed_dim + 4 * self.state_dim * self.num_heads))
