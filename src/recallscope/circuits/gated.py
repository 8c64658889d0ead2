"""Circuits of matrix memories that write (key, value) pairs only: a plain gate, the delta rule, and least squares.

The gate must know keys from values, so values need a direction of their own. It costs no dimension: a tight frame
stays one if words change their sign, so the signs are chosen such that all values lie on one side of one axis, and the
gate is so steep that it is exactly 0 or exactly open. Keys are so short that they lie at 0, whatever direction they
use; the projection to keys undoes that.
"""

import math
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from recallscope.architectures.matrix_memory import DeltaNetSpec, MesaNetSpec, MLSTMSpec
from recallscope.architectures.matrix_memory_model import MemoryLayer, MemoryModel
from recallscope.architectures.mesa_net_layers import MesaNetLayer
from recallscope.circuits.circuit import CircuitSizes, circuit
from recallscope.circuits.codes import tight_frame

SHUT = 120.0  # this far below 0 exp and sigmoid are exactly 0 in float32; this far above a sigmoid is exactly 1
KEY_NORM = 2.0**-40
SAME = 2.0**-10  # a coordinate that all values have: it moves all their logits alike, and must not reach those of keys


@dataclass(frozen=True)
class OneSided:
    """Values whose coordinate along one axis lies between `least` and `most`, both positive."""

    values: Float[Tensor, "D half"]
    axis: int

    @property
    def least(self) -> float:
        """The smallest coordinate: what a gate can rely on."""
        return float(self.values[self.axis].min())

    @property
    def most(self) -> float:
        """The largest."""
        return float(self.values[self.axis].max())


def one_sided_frame(dim: int, count: int, generator: torch.Generator, *, own_axis: bool = False) -> OneSided:
    """A tight frame, signs chosen so that all words lie on one side of an axis; the axis is the clearest of `dim`.

    With `own_axis` the axis holds the same small number for every word instead, and the frame has dim - 1 dimensions:
    what a gate needs that is not saturated.
    """
    if own_axis:
        return OneSided(torch.cat((torch.full((1, count), SAME), tight_frame(dim - 1, count, generator))), axis=0)
    frame = tight_frame(dim, count, generator)
    axis = int(frame.abs().amin(dim=1).argmax())
    return OneSided(frame * frame[axis].sign(), axis)


@torch.no_grad()
def write_codes(
    model: MemoryModel, values: OneSided, generator: torch.Generator, *, key_length: float = 1.0
) -> MemoryLayer:
    """Fill embedding and projections: keys from the token before, queries and values from this one; returns the layer.

    Keys and queries are a tight frame of R^N, keys of the given length.
    """
    (layer,), (D, V), N = model.layers, model.E.shape, model.spec.state_dim
    if N > D:
        raise ValueError(
            f"state_dim={N} exceeds embed_dim={D}: keys are read off the embedding by a matrix, so they have D "
            f"dimensions at most. Use state_dim <= {D}."
        )
    half = V // 2
    model.E[:N, :half] = KEY_NORM * tight_frame(N, half, generator)
    model.E[:, half:] = values.values
    before, now = layer.W_in
    q, _, v, *_ = now.split(layer.rows)
    _, k, *_ = before.split(layer.rows)
    q[:, :N] = torch.eye(N) / KEY_NORM
    k[:, :N] = key_length * torch.eye(N) / KEY_NORM
    v.copy_(torch.eye(D))
    layer.W_out.copy_(torch.eye(D))
    return layer


@torch.no_grad()
def open_at_facts(layer: MemoryLayer, values: OneSided) -> None:
    """The first gate, a sigmoid: exactly 1 at a value after a key, exactly 0 at all other pairs."""
    before, now = (tap.split(layer.rows)[3] for tap in layer.W_in)
    now[0, values.axis] = rise = 2 * SHUT / values.least
    before[0, values.axis] = -rise * values.most / values.least
    assert layer.gate_bias is not None
    layer.gate_bias[0] = -SHUT


@torch.no_grad()
def gated_circuit(
    vocab_size: int, embed_dim: int, state_dim: int, generator: torch.Generator, *, own_axis: bool = False
) -> MemoryModel:
    """An mLSTM that writes after keys only and forgets nothing: SNR² = N D / n.

    Its gate is an exponential, which has no upper end: it is 1 where the token before is a key, and a key that follows
    a key brings no value. The normaliser is off, as it would change no answer.
    """
    spec = MLSTMSpec(embed_dim=embed_dim, state_dim=state_dim, residual=False, normaliser=False)
    model = MemoryModel(spec, vocab_size)
    values = one_sided_frame(embed_dim, vocab_size // 2, generator, own_axis=own_axis)
    layer = write_codes(model, values, generator)
    layer.W_in[0].split(layer.rows)[3][0, values.axis] = -SHUT / values.least
    assert layer.gate_bias is not None
    layer.gate_bias.copy_(torch.tensor([0.0, SHUT]))  # nothing is forgotten
    return model


@circuit("gated", "a write gate: only (key, value) pairs are written (mLSTM)", laws=("gated",))
def gated(sizes: CircuitSizes, generator: torch.Generator) -> MemoryModel:
    return gated_circuit(sizes.vocab_size, sizes.embed_dim, sizes.state_dim, generator)


def delta_circuit(
    vocab_size: int, embed_dim: int, state_dim: int, generator: torch.Generator, *, write_rate: float
) -> MemoryModel:
    """A DeltaNet that writes (key, value) pairs with rate b, and nothing else.

    A sigmoid held at b would need all values at one coordinate. So the gate is 1, and keys have length sqrt(b) in place
    of 1: S <- S - k kᵀ S + k vᵀ is the rule for unit keys, with v divided by sqrt(b).
    """
    if not 0 < write_rate <= 2:
        raise ValueError(f"write_rate={write_rate} is outside (0, 2]: beyond 2 every write makes the state longer.")
    spec = DeltaNetSpec(embed_dim=embed_dim, state_dim=state_dim, residual=False, qk_norm="none")
    model = MemoryModel(spec, vocab_size)
    values = one_sided_frame(embed_dim, vocab_size // 2, generator)
    open_at_facts(write_codes(model, values, generator, key_length=write_rate**0.5), values)
    return model


@circuit(
    "delta",
    "the delta rule with rate write_rate, at (key, value) pairs only (DeltaNet)",
    laws=("delta",),
    law_options={"b": "write_rate"},
)
def delta(sizes: CircuitSizes, generator: torch.Generator) -> MemoryModel:
    return delta_circuit(sizes.vocab_size, sizes.embed_dim, sizes.state_dim, generator, write_rate=sizes.write_rate)


@torch.no_grad()
def least_squares_circuit(
    vocab_size: int, embed_dim: int, state_dim: int, generator: torch.Generator, *, ridge: float = 1e-5
) -> MemoryModel:
    """A MesaNet that writes (key, value) pairs only: SNR² = N D / (n - N), and no error for N_f <= N."""
    model = MemoryModel(MesaNetSpec(embed_dim=embed_dim, state_dim=state_dim, residual=False), vocab_size)
    values = one_sided_frame(embed_dim, vocab_size // 2, generator)
    layer = cast(MesaNetLayer, write_codes(model, values, generator))
    open_at_facts(layer, values)
    layer.log_ridge.fill_(math.log(ridge))
    return model


@circuit("least-squares", "least squares over (key, value) pairs (MesaNet)", laws=("least-squares",))
def least_squares(sizes: CircuitSizes, generator: torch.Generator) -> MemoryModel:
    return least_squares_circuit(sizes.vocab_size, sizes.embed_dim, sizes.state_dim, generator)
