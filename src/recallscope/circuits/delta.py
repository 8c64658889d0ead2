"""The delta rule written down: a new value replaces a share b of what its key held."""

import torch

from recallscope.architectures.delta_net_model import DeltaNet
from recallscope.architectures.matrix_memory import DeltaNetSpec
from recallscope.circuits.circuit import CircuitSizes, circuit
from recallscope.circuits.gated import one_sided_frame, open_at_facts, write_codes


def delta_circuit(
    vocab_size: int, embed_dim: int, state_dim: int, generator: torch.Generator, *, write_rate: float
) -> DeltaNet:
    """A DeltaNet that writes (key, value) pairs with rate b, and nothing else.

    A sigmoid held at b would need all values at one coordinate. So the gate is 1, and keys have length sqrt(b) in place
    of 1: S <- S - k kᵀ S + k vᵀ is the rule for unit keys, with v divided by sqrt(b).
    """
    if not 0 < write_rate <= 2:
        raise ValueError(f"write_rate={write_rate} is outside (0, 2]: beyond 2 every write makes the state longer.")
    spec = DeltaNetSpec(embed_dim=embed_dim, state_dim=state_dim, residual=False, qk_norm="none")
    model = DeltaNet(spec, vocab_size)
    values = one_sided_frame(embed_dim, vocab_size // 2, generator)
    open_at_facts(write_codes(model, values, generator, key_length=write_rate**0.5), values)
    return model


@circuit(
    "delta",
    "the delta rule with rate write_rate, at (key, value) pairs only (DeltaNet)",
    laws=("delta",),
    law_options={"b": "write_rate"},
)
def delta(sizes: CircuitSizes, generator: torch.Generator) -> DeltaNet:
    return delta_circuit(sizes.vocab_size, sizes.embed_dim, sizes.state_dim, generator, write_rate=sizes.write_rate)
