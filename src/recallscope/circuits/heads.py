"""One circuit per head pattern of Mamba-2: which single-head model each of them really is."""

import torch
from jaxtyping import Float
from torch import Tensor

from recallscope.architectures.multihead import MultiHeadSpec
from recallscope.architectures.multihead_model import MultiHeadMamba
from recallscope.circuits.circuit import CircuitSizes, circuit
from recallscope.circuits.codes import hash_matrix, sphere_code
from recallscope.ops.head_patterns import dealing_weight, stacking_weight
from recallscope.specs import HeadPattern


@torch.no_grad()
def head_circuit(
    head_pattern: HeadPattern, E: Float[Tensor, "D V"], hashes: list[Float[Tensor, "N D"]], *, expand: int = 2
) -> MultiHeadMamba:
    """The recall circuit with M = len(hashes) heads, head h hashing with hashes[h].

    - MVA: B and C are shared, so only hashes[0] is used; the heads are slices of the values, stacked again. Exactly the
      single-head circuit of E and hashes[0].
    - MHA: head h carries its slice of the values, with its own hash. With equal hashes again the single-head circuit.
    - MQA, MKA: values are shared, so all of them must pass through P = D_in / M channels. The first min(D, P) rows of E
      are kept: the single-head circuit of those rows. Every head reads alike (F^h = F), and the first one's word is
      taken.

    Paper: Lem H.2 (`lem:mva-recall`), Lem H.3 (`lem:mqa-recall`), Lem H.4 (`lem:mka-recall`), Lem H.5
        (`lem:mha-recall`).
    """
    (D, V), (N, _), M = E.shape, hashes[0].shape, len(hashes)
    spec = MultiHeadSpec(embed_dim=D, state_dim=N, num_heads=M, head_pattern=head_pattern, expand=expand, conv_width=2)
    model = MultiHeadMamba(spec, V)
    (layer,) = model.layers
    D_in, P = spec.inner_dim, spec.head_dim
    model.E.copy_(E)
    lift = torch.eye(D_in, D)  # the embedding in the first D channels
    for weight in (layer.P_in_x, layer.P_in_B, layer.P_in_C):
        weight.copy_(lift)
    layer.P_out.copy_(lift.T)
    now, before = torch.tensor([0.0, 1.0]), torch.tensor([1.0, 0.0])
    layer.W_conv_x.copy_(now.expand(D_in, 2))
    layer.W_conv_B.copy_(before.expand(D_in, 2))
    layer.W_conv_C.copy_(now.expand(D_in, 2))
    padded = torch.stack([F @ lift.T for F in hashes])  # M N D_in
    layer.S_B.copy_(padded[: len(layer.S_B)])
    layer.S_C.copy_(padded[: len(layer.S_C)])
    layer.W_y.copy_(stacking_weight(M, P))
    if layer.shares_values:
        kept = min(D, P)
        if any(not torch.equal(F, hashes[0]) for F in hashes):
            raise ValueError(
                f"{head_pattern} shares keys or queries, so recall needs F^h = F in every head (Lem H.3). "
                f"Give equal hashes."
            )
        model.E[kept:] = 0
        layer.W_x.zero_()
        layer.W_x[:, 0] = 1
        layer.W_y.zero_()
        layer.W_y[:P, :, 0] = torch.eye(P)
    else:
        layer.W_x.copy_(dealing_weight(M, P))
    return model


@circuit("MVA", "num_heads heads that share keys and queries (Lem H.2)", head_pattern="MVA")
def mva(sizes: CircuitSizes, generator: torch.Generator) -> MultiHeadMamba:
    return _random_heads("MVA", sizes, generator)


@circuit("MQA", "num_heads heads that share values and keys (Lem H.3)", head_pattern="MQA")
def mqa(sizes: CircuitSizes, generator: torch.Generator) -> MultiHeadMamba:
    return _random_heads("MQA", sizes, generator)


@circuit("MKA", "num_heads heads that share values and queries (Lem H.4)", head_pattern="MKA")
def mka(sizes: CircuitSizes, generator: torch.Generator) -> MultiHeadMamba:
    return _random_heads("MKA", sizes, generator)


@circuit("MHA", "num_heads heads, each with a hash of its own (Lem H.5)", laws=(), head_pattern="MHA")
def mha(sizes: CircuitSizes, generator: torch.Generator) -> MultiHeadMamba:
    return _random_heads("MHA", sizes, generator)


def _random_heads(pattern: HeadPattern, sizes: CircuitSizes, generator: torch.Generator) -> MultiHeadMamba:
    M, own = sizes.num_heads, pattern == "MHA"
    E = sphere_code(sizes.embed_dim, sizes.vocab_size, generator)
    hashes = [hash_matrix(sizes.state_dim, sizes.embed_dim, generator) for _ in range(M if own else 1)]
    return head_circuit(pattern, E, hashes if own else hashes * M, expand=1)
