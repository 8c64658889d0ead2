"""Overwriting a fact in the state of full Mamba, where a write is no longer v' k'ᵀ by construction.

With windows of two tokens the write of a fact still depends on its key and its value alone, and it decays on its
way. So
a fact can be exchanged in two ways: by the model's own write for the new pair, or by the circuit's story, a value code
times a key code. Where the second works as well as the first, the hash table is there in spite of the nonlinearities.
"""

from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.architectures.layered import LayerTrace
from recallscope.architectures.mamba_model import FullMamba
from recallscope.interp.states import context_end, facts_at
from recallscope.interp.surgery import share, unused_values
from recallscope.interp.vocabulary import key_tokens, value_tokens
from recallscope.tasks import Batch


@dataclass(frozen=True)
class FullOverwriteScores:
    """One fact of each sequence given another value in the state, after the context."""

    own_write: float
    """share of trials answered with the new value, exchanging the model's own writes"""
    factored_write: float
    """the same, exchanging v' k'ᵀ with v' averaged over keys and k' averaged over values"""
    others_changed: float
    """share of the other queries whose answer is not what it was, after factored writes"""
    factored_energy: float
    """share of the squared norm of the model's writes that v' k'ᵀ explains: 1 in the linear circuit"""
    trials: int


@torch.no_grad()
def overwrite_in_full(model: FullMamba, batch: Batch, generator: torch.Generator) -> FullOverwriteScores:
    """Exchange one random fact per sequence, decayed as the sequence decays it; then go on reading.

    Paper: App. D.3 (`app-subsec:hidden-as-hash`), on the recurrence of Eq. 3 (`eq:original-ssm`).
    Holds for: one layer with windows of two tokens.
    """
    if len(model.layers) != 1 or model.spec.conv_width != 2:
        raise ValueError(
            f"num_layers={len(model.layers)}, conv_width={model.spec.conv_width}: a write depends on one pair alone "
            f"only in a single layer with windows of two tokens. Use num_layers=1 and conv_width=2."
        )
    t = context_end(batch)
    keys, old = facts_at(batch, t)
    trials, n = keys.shape
    rows, which = torch.arange(trials), torch.randint(n, (trials,), generator=generator)
    key, was = keys[rows, which], old[rows, which]
    new = unused_values(old, model.vocab_size, generator)
    written_at = t - 2 * (n - 1 - which)

    v_code, k_code, energy = _factors(model)
    own = _pair_writes(model, key, new) - _pair_writes(model, key, was)
    factored = einsum(v_code[new] - v_code[was], k_code[key], "batch D_in, batch N -> batch D_in N")
    before = model.answer(batch.tokens, batch.query_positions).argmax(dim=-1)
    mine = batch.tokens.gather(1, batch.query_positions) == key[:, None]
    after_own = _answer(model, batch, own, written_at).argmax(dim=-1)
    after = _answer(model, batch, factored, written_at).argmax(dim=-1)
    return FullOverwriteScores(
        own_write=share((after_own == new[:, None])[mine]),
        factored_write=share((after == new[:, None])[mine]),
        others_changed=share((after != before)[~mine]),
        factored_energy=energy,
        trials=trials,
    )


def _write(trace: LayerTrace, at: int) -> tuple[Tensor, Tensor]:
    """Δ x̂ and B of one token."""
    x_hat, B = trace.x_hat[:, at], trace.B[:, at]
    return (x_hat if trace.delta is None else trace.delta[:, at] * x_hat), B


def _pair_writes(model: FullMamba, keys: Int[Tensor, " n"], values: Int[Tensor, " n"]) -> Float[Tensor, "n D_in N"]:
    """What the model writes at a value that follows a key."""
    x, B = _write(model.trace(torch.stack((keys, values), dim=1)).layers[0], at=1)
    return einsum(x, B, "n D_in, n N -> n D_in N")


def _factors(model: FullMamba) -> tuple[Float[Tensor, "V D_in"], Float[Tensor, "V N"], float]:
    """Value codes averaged over keys, key codes averaged over values, and how much of the writes they explain."""
    V = model.vocab_size
    ids = torch.arange(V)
    k, v = ids[key_tokens(V)], ids[value_tokens(V)]
    pairs = torch.cartesian_prod(k, v)
    x, B = _write(model.trace(pairs).layers[0], at=1)
    x, B = x.unflatten(0, (len(k), len(v))), B.unflatten(0, (len(k), len(v)))
    v_code, k_code = x.new_zeros(V, x.shape[-1]), B.new_zeros(V, B.shape[-1])
    v_code[v], k_code[k] = x.mean(dim=0), B.mean(dim=1)
    norm = (x.square().sum(-1) * B.square().sum(-1)).sum()
    cross = ((x * v_code[v]).sum(-1) * (B * k_code[k][:, None]).sum(-1)).sum()
    factored = v_code[v].square().sum() * k_code[k].square().sum()
    return v_code, k_code, float(1 - (norm - 2 * cross + factored) / norm)


def _answer(
    model: FullMamba, batch: Batch, change: Float[Tensor, "batch D_in N"], written_at: Int[Tensor, " batch"]
) -> Float[Tensor, "batch Q V"]:
    """Logits at the queries, had `change` been added at `written_at` and decayed from there."""
    layer = model.layers[0]
    trace, mixer = layer.trace(model.embed(batch.tokens)), layer.mixer
    carried, heard = torch.zeros_like(change), torch.zeros_like(trace.y_hat)
    for t in range(batch.tokens.shape[1]):
        if trace.delta is not None and mixer.A_log is not None:
            carried = carried * torch.exp(trace.delta[:, t, :, None] * -torch.exp(mixer.A_log))
        carried = torch.where((written_at == t)[:, None, None], change, carried)
        if t > context_end(batch):
            heard[:, t] = einsum(carried, trace.C[:, t], "batch D_in N, batch N -> batch D_in")
    y = trace.y + mixer.project_out(heard, trace.gate)  # the projection is linear, the gate is given
    logits = model.unembed(model.finish(y))
    return logits.gather(1, batch.query_positions[..., None].expand(-1, -1, model.vocab_size))
