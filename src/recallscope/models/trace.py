"""What a model was thinking: the named tensors of one forward pass, in the order they come about."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class LayerTrace:
    """One layer, in the paper's letters; what a model lacks is None. Head axes are M, or 1 where shared.

    Paper: Tab. 3 (`tab:mamba_dims`) and Tab. 7 (`tab:mamba2_dims`), time first.
    """

    x: Float[Tensor, "batch L D"]
    """what the layer reads: the embedding, or the layer below"""
    x_hat: Float[Tensor, "batch L D_in"]
    """after projection, convolution and activation: what enters the SSM"""
    B: Float[Tensor, "batch L *heads N"]
    """where it is written (keys)"""
    C: Float[Tensor, "batch L ... N"]
    """where it is read (queries)"""
    y_hat: Float[Tensor, "batch L D_in"]
    """what the SSM says, before the gate"""
    y: Float[Tensor, "batch L D"]
    """what the layer hands on: P_out ŷ, plus x where there is a residual"""
    x_heads: Float[Tensor, "batch L ... P"] | None = None
    """x̂ as the heads see it (multi-head models)"""
    y_heads: Float[Tensor, "batch L ... P"] | None = None
    """what every head says (multi-head models)"""
    gate: Float[Tensor, "batch L D_in"] | None = None
    """ẑ after its activation (full Mamba)"""
    delta: Float[Tensor, "batch L D_in"] | None = None
    """Δ after softplus (full Mamba)"""
    h: Float[Tensor, "batch L ... N"] | None = None
    """every state, `L D_in N` or `L M P N`; large, so only when asked for"""


@dataclass(frozen=True)
class Trace:
    """A whole forward pass: embedding, layers from the bottom up, logits."""

    x_e: Float[Tensor, "batch L D"]
    layers: tuple[LayerTrace, ...]
    logits: Float[Tensor, "batch L V"]
