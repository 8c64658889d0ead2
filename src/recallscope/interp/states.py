"""The state after a token, with an axis for heads whatever the model: h of shape (batch, heads, P, N)."""

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.layered import LayeredModel, LayerTrace
from recallscope.architectures.mamba2_model import Full2Mamba
from recallscope.architectures.mamba_model import FullMamba
from recallscope.tasks import Batch


@torch.no_grad()
def states_at(model: LayeredModel, tokens: Int[Tensor, "batch L"], t: int) -> tuple[Float[Tensor, "batch M P N"], ...]:
    """h_t of every layer, after the tokens 0 .. t.   Paper: Eq. 4 (`eq:simple-ssm`)."""
    L = tokens.shape[1]
    if not 0 <= t < L:
        raise ValueError(f"t={t} is not a position of a sequence of {L} tokens. Use 0 <= t <= {L - 1}.")
    selective = isinstance(model, FullMamba | Full2Mamba)
    trace = model.trace(tokens[:, : t + 1], states=selective)
    return tuple(_last_state(layer) for layer in trace.layers)


def _last_state(layer: LayerTrace) -> Tensor:
    if layer.h is not None:
        return layer.h[:, -1] if layer.x_heads is not None else layer.h[:, -1, None]
    if layer.x_heads is None:
        return einsum(layer.x_hat, layer.B, "batch L P, batch L N -> batch P N")[:, None]
    return einsum(layer.x_heads, layer.B, "batch L M P, batch L M N -> batch M P N")


def facts_at(batch: Batch, t: int) -> tuple[Int[Tensor, "batch n"], Int[Tensor, "batch n"]]:
    """Keys and values of the facts complete after token t; where a key was written twice, its latest value.

    Paper: Sec. 2 (`par:mqar-definition`), repeated keys App. I.2 (`app-subsec:repeated-keys-queries`).
    """
    _, N_k, N_f = batch.all_values.shape
    done, more = divmod(min((t + 1) // 2, N_k * N_f), N_f)
    latest = batch.all_values[:, done, :more] if more else batch.keys[:, :0]
    if done == 0:
        return batch.keys[:, :more], latest
    return batch.keys, torch.cat((latest, batch.all_values[:, done - 1, more:]), dim=1)


def context_end(batch: Batch) -> int:
    """Position of the last token of the facts: from here on the table is asked."""
    _, N_k, N_f = batch.all_values.shape
    return 2 * N_f * N_k - 1
