"""Spec of full Mamba-2."""

from __future__ import annotations

from pydantic import Field

from recallscope.architectures.dimensions import Heads
from recallscope.architectures.mamba import MambaBlock
from recallscope.specs import HeadPattern, architecture


@architecture("full2")
class Full2Spec(MambaBlock, Heads):
    """Full Mamba-2: the block of Eq. 1 with heads, gated norm and one decay per head; patterns as in Tab. 5."""

    model = "recallscope.architectures.mamba2_model:Full2Mamba"
    head_pattern: HeadPattern = Field("MVA", description="what the heads share (Tab. 5); MVA is mamba-ssm's default")
