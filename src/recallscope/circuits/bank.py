"""Two banks, written down as a full Mamba: keys carry one bit, and a query hears only the facts of its own bank.

Of the 2 D channels N hold the key of the token before, and the rest are two banks that both hold this token's value.
SiLU shuts the channels of the key if the token before is a value, so nothing but (key, value) pairs is written. Delta
is zero in the bank that is not the key's, the gate is zero in the bank that is not the query's. Each bank sees half of
the facts, in a state of its own: SNR² = N (2 D - N) / n.
"""

from typing import cast

import torch

from recallscope.architectures.mamba import MambaSpec
from recallscope.architectures.mamba_model import Mamba, MambaMixer
from recallscope.circuits.circuit import CircuitSizes, circuit
from recallscope.circuits.codes import tight_frame

SMALL = 2.0**-12  # inputs of this size pass SiLU as x/2
KEY_NORM = 2.0**-20  # of a key against a value: keys raise no logit
BEFORE = 2.0**6  # tap of the one value channel that also sees the bit of the token before
SHUT = 100.0  # softplus and SiLU are 0 this far below 0, and the identity this far above


@torch.no_grad()
def bank_circuit(vocab_size: int, embed_dim: int, state_dim: int, generator: torch.Generator) -> Mamba:
    """A full Mamba without norm, residual and skip; nothing fades.

    Values use P = D - N/2 of the D dimensions, as many as a bank has channels; the last dimension tells values from
    keys. Keys are short and lie among the values: their code in the first N dimensions, their bit in dimension P. No
    channel is spent on the bit: in the channel P of the first bank the convolution adds a little of the token before,
    in that of the second it does not, and the difference of the two is the bit.
    """
    V, D, N = vocab_size, embed_dim, state_dim
    half, P = V // 2, (2 * D - N) // 2
    if not 1 <= N < P:
        raise ValueError(
            f"state_dim={N} leaves 2 x {P} of 2 x {D} channels for two banks of values, and the N numbers of a query "
            f"and its bit are read off one bank. Use state_dim < 2/3 embed_dim."
        )
    spec = MambaSpec(embed_dim=D, state_dim=N, norm="none", residual=False, skip=False, conv_bias=False)
    model = Mamba(spec, V)
    mixer = cast(MambaMixer, model.layers[0].mixer)
    assert mixer.dt_proj is not None
    assert mixer.A_log is not None
    bits = torch.where(torch.randperm(half, generator=generator) % 2 == 0, 1.0, -1.0)  # half of the keys have either
    model.E[:N, :half] = KEY_NORM * tight_frame(N, half, generator)
    model.E[P - 1, :half] = KEY_NORM * bits
    model.E[:P, half:] = tight_frame(P, half, generator)
    model.E[-1, half:] = 1  # what tells values from keys; nothing is ever written to it
    first, second, key = slice(0, P), slice(P, 2 * P), slice(2 * P, 2 * P + N)
    unit = torch.eye(D)
    x_rows, z_rows = mixer.in_proj.weight.split(2 * D)
    x_rows[first, :P] = x_rows[second, :P] = SMALL * torch.eye(P)
    x_rows[key] = SMALL / KEY_NORM * unit[:N] - (SHUT + SMALL / KEY_NORM) * unit[-1]
    before, now = mixer.conv1d.weight[:, 0].T
    before[key], now[first], now[second] = 1, 1, 1
    before[P - 1] = BEFORE
    low, B, C = mixer.x_proj.weight.split(mixer.x_proj_rows)
    B[:, key] = 2 / SMALL * torch.eye(N)
    C[:, first][:, :N] = 2 / SMALL / KEY_NORM * torch.eye(N)
    low[0, P - 1] = 2 / SMALL / KEY_NORM / BEFORE
    low[0, 2 * P - 1] = -low[0, P - 1]
    for bank, sign in ((first, 1), (second, -1)):
        mixer.dt_proj.weight[bank, 0] = sign * SHUT
        z_rows[bank, P - 1] = sign * SHUT / KEY_NORM
        mixer.out_proj.weight[:P, bank] = torch.eye(P)
    mixer.A_log.fill_(-SHUT)
    return model


@circuit("bank", "two banks of channels, chosen by one bit of the key (full Mamba)", laws=("full-bank",))
def bank(sizes: CircuitSizes, generator: torch.Generator) -> Mamba:
    return bank_circuit(sizes.vocab_size, sizes.embed_dim, sizes.state_dim, generator)
