"""Causal checks on the operators: cut blocks out of G_vv and G_kq, and see which of them the answers need."""

from dataclasses import dataclass

import torch
from einops import einsum
from jaxtyping import Bool, Float, Int
from torch import Tensor

from recallscope.architectures.capabilities import HasOperators
from recallscope.architectures.model import RecallModel
from recallscope.interp.operators import operators_by_layer
from recallscope.tasks import Batch


@torch.no_grad()
def answer_ablated(
    model: RecallModel,
    tokens: Int[Tensor, "batch L"],
    positions: Int[Tensor, "batch Q"],
    *,
    value_blocks: Bool[Tensor, " W"],
    match_blocks: Bool[Tensor, "W W"],
) -> Float[Tensor, "batch Q V"]:
    """Logits at the positions with only the given blocks of G_vv and G_kq, all others set to 0.

    Paper: Eq. 10 with the blocks of Eq. 11 (`eq:Gvv-Gkq`).   Holds for: models of one layer.
    """
    able, layers = model.require(HasOperators), operators_by_layer(model)
    if len(layers) != 1:
        raise ValueError(
            f"the model has {len(layers)} layers, and Eq. 10 writes one as G_vv and G_kq. Use num_layers=1."
        )
    V, (count, L) = model.vocab_size, tokens.shape
    past = torch.arange(L, device=tokens.device) <= positions[..., None]
    logits = layers[0][0].Pi_v_in.new_zeros(*positions.shape, V)
    for head in layers[0]:
        W = head.conv_width
        alpha = logits.new_zeros(count, positions.shape[1], L)
        for i, j in match_blocks.nonzero().tolist():
            k, seen = _tap(head.Pi_k_in, tokens, W, i, V)
            q, asks = _tap(head.Pi_q_in, tokens, W, j, V)
            q_at = (q * asks[..., None]).gather(1, positions[..., None].expand(-1, -1, q.shape[-1]))
            alpha += einsum(q_at, k * seen[..., None], "batch Q N, batch tau N -> batch Q tau")
        alpha = alpha * past
        for i in value_blocks.nonzero().flatten().tolist():
            v, seen = _tap(head.Pi_v_in, tokens, W, i, V)
            logits += einsum(alpha, v * seen[..., None], "batch Q tau, batch tau P -> batch Q P") @ head.Pi_v_out.T
    if able.residual:
        logits += able.unembed(able.embed(tokens.gather(1, positions)))
    return logits


def _tap(pi: Tensor, tokens: Tensor, W: int, tap: int, V: int) -> tuple[Tensor, Tensor]:
    """Columns of one block for the token that stands there in each window, and whether there is one."""
    lag = W - 1 - tap
    there = torch.arange(tokens.shape[1], device=tokens.device) >= lag
    shifted = tokens.roll(lag, dims=1)
    return pi.T[tap * V : (tap + 1) * V][shifted], there.expand(tokens.shape)


@dataclass(frozen=True)
class AblationScores:
    """Accuracy with parts of the operators cut out."""

    circuit_only: float
    """only the predicted blocks are kept"""
    without_value_block: float
    """all but the predicted block of G_vv"""
    without_match_block: float
    """all but the predicted block of G_kq"""


def ablate_blocks(model: RecallModel, batch: Batch) -> AblationScores:
    """Cut blocks out of G_vv and G_kq: the predicted ones must suffice, and be needed.

    Paper: Eq. 11 (`eq:Gvv-Gkq`).   Holds for: models of one layer with windows of two tokens or more.
    """
    ops = operators_by_layer(model)[0][0]
    W = ops.conv_width
    if W < 2:
        raise ValueError(
            "conv_width=1: no window holds a key and its value, so G_kq has no predicted block (Tab. 8, rung E). "
            "Use conv_width >= 2."
        )
    value = torch.zeros(W, dtype=torch.bool)
    match = torch.zeros(W, W, dtype=torch.bool)
    value[-1 - ops.delay] = match[-2 - ops.delay, -1] = True

    def accuracy(value_blocks: Tensor, match_blocks: Tensor) -> float:
        logits = answer_ablated(
            model, batch.tokens, batch.query_positions, value_blocks=value_blocks, match_blocks=match_blocks
        )
        return float((logits.argmax(dim=-1) == batch.answers).double().mean())

    every_value, every_match = torch.ones_like(value), torch.ones_like(match)
    return AblationScores(accuracy(value, match), accuracy(~value, every_match), accuracy(every_value, ~match))
