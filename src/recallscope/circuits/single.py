"""One layer, written down: shift, hash, store, match, retrieve."""

import torch
from jaxtyping import Float
from torch import Tensor

from recallscope.architectures.linear_mamba import LinearMambaSpec
from recallscope.architectures.linear_mamba_model import LinearLayer, LinearMamba
from recallscope.circuits.circuit import CircuitSizes, circuit
from recallscope.circuits.codes import hash_matrix, sphere_code


@torch.no_grad()
def compressive_circuit(E: Float[Tensor, "D V"], F: Float[Tensor, "N D"]) -> LinearMamba:
    """The recall circuit for any embedding E and hash F.

    P_in doubles the embedding, the convolution shifts one half, S_B hashes the token before, S_C the token now, and
    P_out keeps the half that holds the value: y_t = Σ_τ Eᵀ E x_τ (F E x_{τ-1})ᵀ (F E x_t).

    Paper: Thm 3.2 (`thm:compressive-recall`, `eq:compressive-recall-weights`), output Eq. 8
        (`eq:compressive-recall-out`).
    """
    (D, V), N = E.shape, F.shape[0]
    model = LinearMamba(
        LinearMambaSpec(embed_dim=D, state_dim=N, expand=2, conv_width=2, num_layers=1, residual=False), V
    )
    (layer,) = model.layers
    model.E.copy_(E)
    write_matching(layer, F)
    layer.P_out.copy_(torch.cat((torch.zeros(D, D), torch.eye(D)), dim=1))
    return model


def write_matching(layer: LinearLayer, F: Float[Tensor, "N D"]) -> None:
    """P_in, convolution, S_B and S_C: the embedding twice, the first copy shifted by one token; F hashes both."""
    eye, none = torch.eye(F.shape[1]), torch.zeros(F.shape[1])
    layer.P_in.copy_(torch.cat((eye, eye)))
    layer.W_conv.copy_(torch.stack((torch.cat((none + 1, none)), torch.cat((none, none + 1))), dim=1))
    layer.S_B.copy_(torch.cat((F, torch.zeros_like(F)), dim=1))
    layer.S_C.copy_(torch.cat((torch.zeros_like(F), F), dim=1))


def ideal_circuit(vocab_size: int, *, values_only: bool = False) -> LinearMamba:
    """The uncompressed circuit, D = N = V: a table with a row for every value and a column for every key.

    Paper: Thm 3.1 (`thm:non-compressive-recall`).
    Departs: with filler from the whole vocabulary it is not perfect: a filler may equal a key that is asked later, and
        is then followed by a second "value". `values_only` replaces P_out = (0 | I) by (0 | Π_values), as the proof
        says in words; that restores perfection for L = 4 N_f, where every filler is followed by a key, but not for
        longer L.
    """
    model = compressive_circuit(torch.eye(vocab_size), torch.eye(vocab_size))
    if values_only:
        with torch.no_grad():
            model.layers[0].P_out[: vocab_size // 2] = 0
    return model


def designed_circuit(vocab_size: int, embed_dim: int, state_dim: int, generator: torch.Generator) -> LinearMamba:
    """The compressive circuit with random codes: E on the sphere, F = sqrt(D/N) times orthonormal rows.

    Paper: App. E.1 (`app-subsec:designed-weights`), the model of Thm F.2 (`app-thm:designed-scaling-law`).
    """
    E = sphere_code(embed_dim, vocab_size, generator)
    return compressive_circuit(E, hash_matrix(state_dim, embed_dim, generator))


@circuit("ideal", "D = N = V, no compression (Thm 3.1)", laws=(), fixed_size=True)
def ideal(sizes: CircuitSizes, generator: torch.Generator) -> LinearMamba:
    return ideal_circuit(sizes.vocab_size)


@circuit("compressive", "random codes (Thm 3.2, App. E.1)")
def compressive(sizes: CircuitSizes, generator: torch.Generator) -> LinearMamba:
    return designed_circuit(sizes.vocab_size, sizes.embed_dim, sizes.state_dim, generator)
