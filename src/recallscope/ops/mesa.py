"""Least squares as a memory (MesaNet): o_t = S_tᵀ (H_t + diag(λ))⁻¹ q_t, with S_t = w_t S_{t-1} + k_t v_tᵀ and
H_t = w_t H_{t-1} + k_t κ_tᵀ, where k_t = β_t κ_t is what is written under the key κ_t.

It reads with the weights that fit all pairs seen so far best, in the sense of ridge regression. H is symmetric.
"""

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from recallscope.ops.delta_scan import DeltaForm, delta_scan


def mesa_scan(
    q: Float[Tensor, "batch Q M N"],
    k: Float[Tensor, "batch L M N"],
    v: Float[Tensor, "batch L M P"],
    keys: Float[Tensor, "batch L M N"],
    ridge: Float[Tensor, "M N"],
    w: Float[Tensor, "batch L M 1"] | None = None,
    *,
    positions: Int[Tensor, "batch Q"] | None = None,
    form: DeltaForm = "auto",
) -> Float[Tensor, "batch Q M P"]:
    """o after every token, or at the positions: H where asked by one scan, a solve, and S read with what it gives."""
    (batch, Q, M, N), L = q.shape, k.shape[1]
    at = torch.arange(L, device=k.device).expand(batch, L) if positions is None else positions
    units = torch.eye(N, dtype=q.dtype, device=q.device).repeat(Q, 1)[None, :, None].expand(batch, Q * N, M, N)
    rows = delta_scan(units, k, keys, w, positions=at.repeat_interleave(N, dim=1), form=form)
    H = rows.unflatten(1, (Q, N)).transpose(2, 3)  # batch Q M N N
    solved = torch.linalg.solve(H + torch.diag_embed(ridge), q)
    return delta_scan(solved, k, v, w, positions=positions, form=form)


def mesa_loop(
    q: Float[Tensor, "batch L M N"],
    k: Float[Tensor, "batch L M N"],
    v: Float[Tensor, "batch L M P"],
    keys: Float[Tensor, "batch L M N"],
    ridge: Float[Tensor, "M N"],
    w: Float[Tensor, "batch L M 1"] | None = None,
) -> Float[Tensor, "batch L M P"]:
    """One token after another: the plain twin."""
    S, H = (x.new_zeros(*x.shape[:1], *k.shape[2:], x.shape[-1]) for x in (v, keys))
    o = []
    for t in range(k.shape[1]):
        left = 1.0 if w is None else w[:, t, :, :, None]
        S = left * S + einsum(k[:, t], v[:, t], "batch M N, batch M P -> batch M N P")
        H = left * H + einsum(k[:, t], keys[:, t], "batch M N, batch M n -> batch M N n")
        solved = torch.linalg.solve(H + torch.diag_embed(ridge), q[:, t])
        o.append(einsum(solved, S, "batch M N, batch M N P -> batch M P"))
    return torch.stack(o, dim=1)
