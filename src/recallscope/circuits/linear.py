"""Circuits of the linear Mamba: one layer and one head, several layers, several heads, keys and values kept apart."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from recallscope.architectures.linear_mamba_model import LinearLayer, LinearMamba
from recallscope.architectures.mamba import LinearMambaSpec, MultiHeadSpec
from recallscope.architectures.multihead_model import MultiHeadMamba
from recallscope.circuits.circuit import CircuitSizes, circuit
from recallscope.circuits.codes import hash_matrix, orthonormal_rows, sphere_code, tight_frame
from recallscope.ops.head_patterns import dealing_weight, stacking_weight
from recallscope.specs import HeadPattern


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


@torch.no_grad()
def depth_circuit(
    key_code: Float[Tensor, "D_k half"],
    value_code: Float[Tensor, "D_v half"],
    hashes: list[Float[Tensor, "N D_k"]],
    *,
    key_norm: float = 2.0**-10,
) -> LinearMamba:
    """Layers that each add Σ_τ v_τ (F^l k_{τ-1})ᵀ (F^l k_t) to the residual stream: together a state of Λ N.

    The stream has three blocks: keys (D_k), values as read (D_v), values as written (D_v). A token's value stands in
    both value blocks; layers read the first and write the second, so no layer stores what another one said, and the
    sum over layers is exact. Keys are short (`key_norm`, undone by the hashes), so that the residual does not bring the
    query itself to the top.

    Paper: Thm G.1 (`app-thm:multi-layer-recall`, `thm:multi-layer-recall-scaling-laws`), output
        `eq:multi-layer-recall-out`.
    Departs: the printed weights, S_B = (F | a F) with a = -1, cancel the residual only if the query token occurs once
        (x_τᵀ G x_t is 1 at every earlier occurrence), and later layers store the earlier ones' output under keys
        followed by keys. Neither happens here.
    """
    (D_k, half), (D_v, half_v), N = key_code.shape, value_code.shape, hashes[0].shape[0]
    if half != half_v:
        raise ValueError(
            f"{half} keys and {half_v} values: the vocabulary has as many of one as of the other (Sec. 2)."
        )
    D = D_k + 2 * D_v
    spec = LinearMambaSpec(embed_dim=D, state_dim=N, expand=2, conv_width=2, num_layers=len(hashes), residual=True)
    model = LinearMamba(spec, 2 * half)
    keys, read, write = slice(0, D_k), slice(D_k, D_k + D_v), slice(D_k + D_v, D)
    model.E[keys, :half] = key_norm * key_code
    model.E[read, half:] = value_code
    model.E[write, half:] = value_code
    for layer, F in zip(model.layers, hashes, strict=True):
        write_matching(layer, torch.cat((F / key_norm, torch.zeros(N, 2 * D_v)), dim=1))
        layer.P_out.zero_()
        layer.P_out[write, D:][:, read] = torch.eye(D_v)
    return model


def designed_depth(
    vocab_size: int, embed_dim: int, state_dim: int, num_layers: int, generator: torch.Generator, *, joint: bool = True
) -> LinearMamba:
    """The depth circuit with random codes; hashes orthonormal together (`joint`) or drawn one by one.

    Keys get D_k = Λ N dimensions (or half of D, if that is more than it has), values the rest, twice.

    Paper: Thm G.1 (`app-thm:multi-layer-recall`).
    Departs: hashes drawn independently do not average their noise as 1/(Λ N), since they share E: it is
        1/(Λ N) + (1 - 1/Λ)/D_k. Only jointly orthonormal ones do, and those need Λ N <= D_k.
    """
    total = num_layers * state_dim
    D_k = total if total <= embed_dim - 2 else embed_dim // 2
    D_v = (embed_dim - D_k) // 2
    D_k = embed_dim - 2 * D_v
    if D_v < 1 or state_dim > D_k or (joint and total > D_k):
        raise ValueError(
            f"num_layers x state_dim = {total} jointly orthonormal hashes, and values stored twice, do not fit into "
            f"embed_dim={embed_dim}. Use embed_dim >= {total + 2}, or joint=False."
        )
    keys = sphere_code(D_k, vocab_size // 2, generator)
    values = sphere_code(D_v, vocab_size // 2, generator)
    rows = [total] if joint else [state_dim] * num_layers  # drawn at once
    scale = (D_k / rows[0]) ** 0.5 / len(rows) ** 0.5
    stacked = scale * torch.cat([orthonormal_rows(count, D_k, generator) for count in rows])
    return depth_circuit(keys, values, list(stacked.split(state_dim)))


@circuit("depth", "one circuit over num_layers layers (Thm G.1)", laws=())
def depth(sizes: CircuitSizes, generator: torch.Generator) -> LinearMamba:
    return designed_depth(sizes.vocab_size, sizes.embed_dim, sizes.state_dim, sizes.num_layers, generator)


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


def selective_circuit(
    vocab_size: int,
    embed_dim: int,
    state_dim: int,
    generator: torch.Generator,
    *,
    split: Literal["hard", "soft"] = "soft",
    frames: Literal["tight", "random"] = "tight",
    kv_share: float = 0.5,
    key_norm: float = 2.0**-7,
) -> LinearMamba:
    """Keys in an N-dimensional block, values beside it; short keys, so that no key wins the argmax.

    `soft` gives values the share y = N r / (N r + D - N) of their squared norm inside the key block, r = `kv_share`
    being the share of key-value pairs among all pairs (1/2 for AR, about 5/12 for MQAR): it minimises leak plus
    interference. The hash undoes `key_norm`, so matching is unaffected, while key logits, and what key-key pairs leave
    behind, shrink.

    Paper: Rem F.3 (`app-rem:key-value-selectivity`), made explicit.
    Departs: the remark takes orthogonal key and value subspaces for free; they share the D dimensions.
    """
    V, D, N = vocab_size, embed_dim, state_dim
    half, rest = V // 2, D - N
    if not 1 <= N <= D or (split == "hard" and rest < 1):
        raise ValueError(
            f"state_dim={N} leaves {rest} of embed_dim={D} dimensions for values: a {split} split needs "
            f"{'state_dim < embed_dim' if split == 'hard' else 'state_dim <= embed_dim'} (Rem F.3)."
        )
    code = tight_frame if frames == "tight" else sphere_code
    in_key_block = 0.0 if split == "hard" else N * kv_share / (N * kv_share + rest)
    E = torch.zeros(D, V)
    E[:N, :half] = key_norm * code(N, half, generator)
    if in_key_block > 0:
        E[:N, half:] = in_key_block**0.5 * code(N, half, generator)
    if rest > 0:
        E[N:, half:] = (1 - in_key_block) ** 0.5 * code(rest, half, generator)
    F = torch.cat((torch.eye(N) / key_norm, torch.zeros(N, rest)), dim=1)
    return compressive_circuit(E, F)


@circuit("selective-soft", "keys and values apart as far as it pays (Rem F.3)", laws=("trained-sharing",))
def soft(sizes: CircuitSizes, generator: torch.Generator) -> LinearMamba:
    return selective_circuit(
        sizes.vocab_size, sizes.embed_dim, sizes.state_dim, generator, split="soft", kv_share=sizes.kv_share
    )


@circuit("selective-hard", "keys and values in dimensions of their own (Rem F.3)")
def hard(sizes: CircuitSizes, generator: torch.Generator) -> LinearMamba:
    return selective_circuit(sizes.vocab_size, sizes.embed_dim, sizes.state_dim, generator, split="hard")
