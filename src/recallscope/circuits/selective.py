"""Circuits that tell keys from values: what a trained model does, written down.

A token's embedding has a key block of N dimensions, which the hash reads, and a value block of D - N. Keys live in the
first; values in the second (hard), or in both (soft), where their part in the key block is a leak worth its price.
"""

from typing import Literal

import torch

from recallscope.architectures.linear_mamba_model import LinearMamba
from recallscope.circuits.circuit import CircuitSizes, circuit
from recallscope.circuits.codes import sphere_code, tight_frame
from recallscope.circuits.single import compressive_circuit


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
