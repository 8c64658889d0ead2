"""One recall circuit spread over several layers, so that their states add up to one of size Λ N."""

import torch
from jaxtyping import Float
from torch import Tensor

from recallscope.architectures.linear_mamba import LinearMambaSpec
from recallscope.architectures.linear_mamba_model import LinearMamba
from recallscope.circuits.circuit import CircuitSizes, circuit
from recallscope.circuits.codes import orthonormal_rows, sphere_code
from recallscope.circuits.single import write_matching


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
