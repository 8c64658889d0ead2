"""Spec of full Mamba-2."""

from __future__ import annotations

from pydantic import Field

from recallscope.architectures.mamba import MambaBlock
from recallscope.architectures.sizes import Heads
from recallscope.specs import HeadPattern, architecture


@architecture("mamba2")
class Mamba2Spec(MambaBlock, Heads):
    """Full Mamba-2: the block of Eq. 1 with heads, gated norm and one decay per head; patterns as in Tab. 5."""

    model = "recallscope.architectures.mamba2_model:Mamba2"
    head_pattern: HeadPattern = Field("MVA", description="what the heads share (Tab. 5); MVA is mamba-ssm's default")
