"""Least squares written down: a memory that is exact until it holds more facts than its keys have dimensions."""

import math
from typing import cast

import torch

from recallscope.architectures.matrix_memory import MesaNetSpec
from recallscope.architectures.mesa_net_model import MesaNet, MesaNetLayer
from recallscope.circuits.circuit import CircuitSizes, circuit
from recallscope.circuits.gated import one_sided_frame, open_at_facts, write_codes


@torch.no_grad()
def least_squares_circuit(
    vocab_size: int, embed_dim: int, state_dim: int, generator: torch.Generator, *, ridge: float = 1e-5
) -> MesaNet:
    """A MesaNet that writes (key, value) pairs only: SNR² = N D / (n - N), and no error for N_f <= N."""
    model = MesaNet(MesaNetSpec(embed_dim=embed_dim, state_dim=state_dim, residual=False), vocab_size)
    values = one_sided_frame(embed_dim, vocab_size // 2, generator)
    layer = cast(MesaNetLayer, write_codes(model, values, generator))
    open_at_facts(layer, values)
    layer.log_ridge.fill_(math.log(ridge))
    return model


@circuit("least-squares", "least squares over (key, value) pairs (MesaNet)", laws=("least-squares",))
def least_squares(sizes: CircuitSizes, generator: torch.Generator) -> MesaNet:
    return least_squares_circuit(sizes.vocab_size, sizes.embed_dim, sizes.state_dim, generator)
