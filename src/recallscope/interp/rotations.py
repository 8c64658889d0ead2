"""Random changes of the weights that change nothing: the freedom because of which weights cannot be read directly."""

import copy

import torch
from jaxtyping import Float
from torch import Tensor

from recallscope.architectures.layered import LayeredModel
from recallscope.architectures.linear_model import LinearLayer, LinearMamba
from recallscope.architectures.multihead_model import MultiHeadLayer, MultiHeadMamba


def random_rotation(dim: int, generator: torch.Generator, *, dtype: torch.dtype) -> Float[Tensor, "dim dim"]:
    """A rotation or reflection of R^dim, all equally likely."""
    Q, upper = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64))
    return (Q * upper.diagonal().sign()).to(dtype)


@torch.no_grad()
def rotate_model(model: LayeredModel, generator: torch.Generator, *, spread: float = 0.5) -> LayeredModel:
    """An equivalent copy: every freedom below is drawn at random.

    - E -> QᵀE, P_in -> P_in Q, P_out -> QᵀP_out, with one rotation Q for all layers, as they share the stream;
    - inner channels are permuted and scaled, by exp(`spread` x normal), signs flipped: a depthwise convolution
      allows no more. What is scaled on the way in is scaled back on every way out;
    - S_B -> R S_B, S_C -> R S_C with a rotation R of the state, and S_B -> c S_B, S_C -> S_C / c;
    - P_out -> c P_out, S_C -> S_C / c: the one that reaches G_vv and G_kq, as the factor `fix_scale` fixes.

    Paper: Sec. 3.2 (`par:equiv-recall`).
    Departs: the print has Q alone. Any invertible matrix would do for Q and, with its inverse transposed, for R.
    Holds for: linear and multi-head models. Full Mamba keeps only permutations of channels and, where A is the same
        for all channels, of state entries: SiLU, gate and decay act entry by entry, and the norm knows its axes.
    """
    if not isinstance(model, LinearMamba | MultiHeadMamba):
        raise ValueError(
            f"{type(model).__name__} has no such rotations: SiLU, gate, norm and decay act on every channel by itself. "
            f"Use a linear or multi-head model."
        )
    rotated = copy.deepcopy(model)
    Q = random_rotation(len(model.E), generator, dtype=model.E.dtype)
    rotated.E.copy_(Q.T @ model.E)
    for layer in rotated.layers:
        if isinstance(layer, LinearLayer):
            _rotate_linear(layer, Q, generator, spread)
        else:
            _rotate_heads(layer, Q, generator, spread)
    return rotated


def _rotate_linear(layer: LinearLayer, Q: Tensor, generator: torch.Generator, spread: float) -> None:
    D_in = len(layer.P_in)
    order = torch.randperm(D_in, generator=generator)
    scale, conv_scale = (_scales(D_in, generator, spread).to(Q.dtype) for _ in range(2))
    layer.P_in.copy_(scale[:, None] * (layer.P_in @ Q)[order])
    layer.W_conv.copy_(conv_scale[:, None] * layer.W_conv[order])
    back = 1 / (scale * conv_scale)
    _rotate_state(layer, generator, spread)
    for weight in (layer.S_B, layer.S_C):
        weight.copy_(weight[:, order] * back)
    layer.P_out.copy_((Q.T @ layer.P_out)[:, order] * back)


def _rotate_heads(layer: MultiHeadLayer, Q: Tensor, generator: torch.Generator, spread: float) -> None:
    D_in = len(layer.P_out.T)
    for name, reads in (("B", layer.S_B), ("C", layer.S_C)):
        order, scale = torch.randperm(D_in, generator=generator), _scales(D_in, generator, spread).to(Q.dtype)
        P_in, W_conv = getattr(layer, f"P_in_{name}"), getattr(layer, f"W_conv_{name}")
        P_in.copy_(scale[:, None] * (P_in @ Q)[order])
        W_conv.copy_(W_conv[order])
        reads.copy_(reads[..., order] / scale)
    scale = _scales(D_in, generator, spread).to(Q.dtype)
    layer.P_in_x.copy_(scale[:, None] * (layer.P_in_x @ Q))
    if layer.shares_values:  # one weight per channel and head, dealt in order: channels keep their places
        layer.W_x.copy_(layer.W_x / scale.view(layer.num_heads, -1).T)
    else:
        layer.W_x.copy_(layer.W_x / scale)
    _rotate_state(layer, generator, spread)
    mix = random_rotation(D_in, generator, dtype=Q.dtype)
    layer.W_y.copy_(torch.einsum("ab,bpm->apm", mix, layer.W_y))
    layer.P_out.copy_(Q.T @ layer.P_out @ mix.T)


def _rotate_state(layer: LinearLayer | MultiHeadLayer, generator: torch.Generator, spread: float) -> None:
    """One R and one c for all heads, as some patterns share keys or queries between them."""
    R = random_rotation(layer.S_B.shape[-2], generator, dtype=layer.S_B.dtype)
    c = _scales(1, generator, spread).to(R.dtype)
    joint = _scales(1, generator, spread).to(R.dtype)
    layer.S_B.copy_(c * (R @ layer.S_B))
    layer.S_C.copy_((R @ layer.S_C) / (c * joint))
    layer.P_out.mul_(joint)


def _scales(count: int, generator: torch.Generator, spread: float) -> Float[Tensor, " count"]:
    """Away from 0, of either sign."""
    normal = torch.randn(2, count, generator=generator, dtype=torch.float64)
    return torch.exp(spread * normal[0]) * torch.where(normal[1] < 0, -1.0, 1.0)
