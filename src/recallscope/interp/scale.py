"""The one freedom the operators leave, a factor between G_vv and G_kq: fixing it, and adding parts up all the same."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from recallscope.architectures.layered import LayeredModel
from recallscope.interp.operators import Operators, mean_diagonals, token_operators, with_best_delay


def strength(ops: Operators) -> float:
    """How much a stored fact raises its value's logit, whatever the scale: the product of both mean diagonals.

    Windows of more than two tokens hold a fact more than once; what it adds each time is summed.
    """
    delays = range(max(1, ops.conv_width - 1))
    diagonals = [mean_diagonals(replace(ops, delay=delay)) for delay in delays]
    return sum(value * match for value, match in diagonals)


def fix_scale(ops: Operators) -> Operators:
    """The same function with G_vv of mean diagonal 1 over values; G_kq takes the factor, sign included.

    Paper: Eq. 10 leaves this factor free, Eq. 11 (`eq:Gvv-Gkq`) needs it fixed.
    """
    c, _ = mean_diagonals(ops)
    if c == 0:
        raise ValueError(
            "G_vv has mean diagonal 0 over values: this head carries none, and has no scale. Look at another head."
        )
    return replace(ops, Pi_v_out=ops.Pi_v_out / c, Pi_k_in=ops.Pi_k_in * c)


def stack_operators(parts: Sequence[Operators]) -> Operators:
    """Several heads or layers as one: G_vv is what a stored value adds when its own key is asked, G_kq is what a
    match adds to the value's own logit, and both are sums over the parts, whatever their scales.

    Keys are stacked, Ẽ_eff = (F¹; F²; ...) E: the effective F of the theorem. One pair of operators summarises many;
    it is the same function only where all parts share G_vv or G_kq.

    Paper: Thm G.1 (`app-thm:multi-layer-recall`), before `eq:multi-layer-recall-out`.
    """
    if len(parts) == 1:
        return parts[0]
    diagonals = [mean_diagonals(part) for part in parts]
    total = sum(value * match for value, match in diagonals) or 1.0
    return Operators(
        Pi_v_in=torch.cat([part.Pi_v_in for part in parts]),
        Pi_v_out=torch.cat([part.Pi_v_out * (m / total) for part, (_, m) in zip(parts, diagonals, strict=True)], dim=1),
        Pi_k_in=torch.cat([part.Pi_k_in * v for part, (v, _) in zip(parts, diagonals, strict=True)]),
        Pi_q_in=torch.cat([part.Pi_q_in for part in parts]),
        delay=parts[0].delay,
    )


def effective_operators(model: LayeredModel) -> Operators:
    """All heads of all layers, stacked.   Paper: Thm G.1 (`app-thm:multi-layer-recall`)."""
    parts = [head for l in range(len(model.layers)) for head in token_operators(model, layer=l)]
    return stack_operators(with_best_delay(parts))
