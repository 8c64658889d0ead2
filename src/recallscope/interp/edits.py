"""Changing one fact in the state, in the circuit's own coordinates: a fact is v' k'ᵀ, nothing more.

The state only ever adds up, so an edit stays: a model that goes on from h + δ says, at every later token, what it
would have said plus Π_out δ C_t.
"""

from collections.abc import Sequence

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.layered import LayeredModel
from recallscope.interp.operators import Operators, layer_operators
from recallscope.interp.vocabulary import blocks
from recallscope.ops import at_positions


def fact_writes(
    parts: Sequence[Operators], keys: Int[Tensor, " n"], values: Int[Tensor, " n"]
) -> Float[Tensor, "n M P N"]:
    """What each fact leaves in the state of every head: v' k'ᵀ.

    A window of more than two tokens holds the pair several times, once per place; these writes add up.

    Paper: Eq. 13 (`eq:h-prime`); App. D.3 (`app-subsec:hidden-as-hash`).
    """
    written = []
    for part in parts:
        v_taps, k_taps = (blocks(pi, part.size) for pi in (part.Pi_v_in, part.Pi_k_in))
        v, k = v_taps[1:, :, values], k_taps[:-1, :, keys]  # the key stands one place before its value
        written.append(einsum(v, k, "W P n, W N n -> n P N"))
    return torch.stack(written, dim=1)


@torch.no_grad()
def answer_edited(
    model: LayeredModel,
    tokens: Int[Tensor, "batch L"],
    positions: Int[Tensor, "batch Q"],
    edits: Sequence[Float[Tensor, "batch M P N"]],
    *,
    after: int,
) -> Float[Tensor, "batch Q V"]:
    """Logits at the positions, had the states been changed right after token `after`, one edit per layer.

    Paper: Eq. 4 (`eq:simple-ssm`), whose state forgets nothing.   Holds for: linear and multi-head models.
    """
    x, identity = model.embed(tokens), torch.eye(len(model.E), dtype=model.E.dtype, device=model.E.device)
    later = torch.arange(tokens.shape[1], device=tokens.device) > after
    for layer, edit in zip(model.layers, edits, strict=True):
        trace = layer.trace(x)
        C = trace.C if trace.C.ndim == 4 else trace.C[:, :, None]
        out = torch.stack([part.Pi_v_out for part in layer_operators(layer, identity)])  # M D P
        M = len(out)
        C, edit = C.expand(-1, -1, M, -1), edit.expand(-1, M, -1, -1)
        heard = einsum(out, edit, C, "M D P, batch M P N, batch L M N -> batch L D")
        x = trace.y + heard * later[:, None]
    return model.unembed(model.finish(at_positions(x, positions)))
