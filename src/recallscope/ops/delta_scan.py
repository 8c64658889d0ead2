"""Matrix memories with a delta rule: S_t = diag(w_t) S_{t-1} + b_t (a_tᵀ S_{t-1}) + k_t v_tᵀ and o_t = S_tᵀ q_t.

S is N x P per head. Without w nothing fades; with one number per head and token the head fades as one; with N of them
every row of S has its own. Without a and b a write does not depend on what is there already: linear attention, RetNet,
GLA, mLSTM, Mamba-2. With b = -β k and a = w ⊙ k the old value under k is replaced: DeltaNet, Gated DeltaNet, KDA;
RWKV-7 removes under a key of its own. Everything is linear in v, which two tricks use: a channel of ones carries the
normaliser, and unit vectors as values give the attention of every query to every token.

Four forms: the loop, as printed above; tensor operations on chunks, for any device; our C kernel, which keeps a state
per chunk and recomputes the others in the backward pass (`delta_scan_compiled.py`); and on CUDA the Triton kernel of
flash-linear-attention (`delta_scan_fla.py`), if it is installed. None divides by a product of w.
"""

from typing import Literal

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from recallscope.ops.compiled import available, fits
from recallscope.ops.delta_scan_compiled import delta_scan_compiled
from recallscope.ops.delta_scan_fla import delta_scan_fla, fla_missing, runs_on_fla
from recallscope.ops.selective_scan import in_turns

DeltaForm = Literal["auto", "loop", "torch", "compiled", "fla"]
DELTA_CHUNK = 32  # tokens; products of w take chunk² N numbers per head where every row fades by itself


def delta_scan(
    q: Float[Tensor, "batch Q M N"],
    k: Float[Tensor, "batch L M N"],
    v: Float[Tensor, "batch L M P"],
    w: Float[Tensor, "batch L M #N"] | None = None,
    a: Float[Tensor, "batch L M N"] | None = None,
    b: Float[Tensor, "batch L M N"] | None = None,
    *,
    positions: Int[Tensor, "batch Q"] | None = None,
    form: DeltaForm = "auto",
) -> Float[Tensor, "batch Q M P"]:
    """o after every token, or at the positions, by the fastest form there is unless one is named."""
    if (a is None) != (b is None):
        raise ValueError("a and b come together: S += b (aᵀ S). Give both, or neither.")
    if form == "auto":
        form = "compiled" if fits(q, k, v, w, a, b) and available() else "fla" if runs_on_fla(q) else "torch"
    if form == "compiled":
        return delta_scan_compiled(q, k, v, w, a, b, positions=positions)
    if form == "loop":
        return delta_scan_loop(q, k, v, w, a, b, positions=positions)
    if form == "fla" and (missing := fla_missing()):
        raise RuntimeError(f"form='fla' cannot be used, as {missing}. Install recallscope[gpu], or use form='torch'.")
    scan = delta_scan_fla if form == "fla" else delta_scan_torch
    if positions is None:
        return scan(q, k, v, w, a, b)
    flat = in_turns(
        lambda spread: scan(spread.unflatten(-1, q.shape[2:]), k, v, w, a, b).flatten(2),
        q.flatten(2), positions, k.shape[1], v.shape[2] * v.shape[3],
    )  # fmt: skip
    return flat.unflatten(-1, v.shape[2:])


def delta_scan_loop(
    q: Float[Tensor, "batch Q M N"],
    k: Float[Tensor, "batch L M N"],
    v: Float[Tensor, "batch L M P"],
    w: Float[Tensor, "batch L M #N"] | None = None,
    a: Float[Tensor, "batch L M N"] | None = None,
    b: Float[Tensor, "batch L M N"] | None = None,
    *,
    positions: Int[Tensor, "batch Q"] | None = None,
) -> Float[Tensor, "batch Q M P"]:
    """One token after another, as the recurrence is written: the plain twin."""
    S, o = v.new_zeros(len(k), *k.shape[2:], v.shape[-1]), []
    for t in range(k.shape[1]):
        now = S if w is None else w[:, t, :, :, None] * S
        if a is not None and b is not None:
            read = einsum(a[:, t], S, "batch M N, batch M N P -> batch M P")
            now = now + b[:, t, :, :, None] * read[:, :, None]
        S = now + k[:, t, :, :, None] * v[:, t, :, None]
        if positions is None:
            o.append(einsum(q[:, t], S, "batch M N, batch M N P -> batch M P"))
        else:
            here = einsum(q, S, "batch Q M N, batch M N P -> batch Q M P")
            o.append(torch.where((positions == t)[..., None, None], here, 0.0))
    if positions is None:
        return torch.stack(o, dim=1) if o else q.new_zeros(*q.shape[:3], v.shape[-1])
    return torch.stack(o).sum(dim=0)


def delta_scan_torch(
    q: Float[Tensor, "batch L M N"],
    k: Float[Tensor, "batch L M N"],
    v: Float[Tensor, "batch L M P"],
    w: Float[Tensor, "batch L M #N"] | None = None,
    a: Float[Tensor, "batch L M N"] | None = None,
    b: Float[Tensor, "batch L M N"] | None = None,
    *,
    chunk: int = DELTA_CHUNK,
) -> Float[Tensor, "batch L M P"]:
    """In chunks: with u_t = S_{t-1}ᵀ a_t, all u of a chunk solve one triangular system; o is attention to v and u."""
    if chunk < 1:
        raise ValueError(f"chunk={chunk} holds no token. Use chunk >= 1; {DELTA_CHUNK} suits most models.")
    S, o = None, []
    for start in range(0, k.shape[1], chunk):
        parts = [None if x is None else x[:, start : start + chunk].transpose(1, 2) for x in (q, k, v, w, a, b)]
        o_c, S = _chunk(S, *parts)  # type: ignore[arg-type]
        o.append(o_c)
    return torch.cat(o, dim=-2).transpose(1, 2) if o else torch.zeros_like(v)


def _chunk(
    S: Tensor | None, q: Tensor, k: Tensor, v: Tensor, w: Tensor | None, a: Tensor | None, b: Tensor | None
) -> tuple[Float[Tensor, "batch M t P"], Float[Tensor, "batch M N P"]]:
    """o of a chunk's tokens, and the state after it; axes are batch, head, token, entry."""
    fading = None if w is None else _segment_products(w)  # batch M t tau N, or 1 for N

    def match(x: Tensor, y: Tensor, *, before: bool = False) -> Float[Tensor, "batch M t tau"]:
        """x_tᵀ (Π_{τ<s<=t} w_s) y_τ for τ <= t; the product up to t-1, for τ < t, if `before`."""
        if fading is None:
            return (x @ y.mT).tril(-1 if before else 0)
        left = pad(fading[:, :, :-1], (0, 0, 0, 0, 1, 0)) if before else fading
        if left.shape[-1] == 1:
            return (x @ y.mT) * left[..., 0]
        return einsum(x, left, y, "... t N, ... t tau N, ... tau N -> ... t tau")

    since_start = None if w is None else w.cumprod(dim=-2)
    o, writes = match(q, k) @ v, [(k, v)]
    if a is not None and b is not None:
        u = match(a, k, before=True) @ v
        if S is not None:
            u = u + (a if since_start is None else a * pad(since_start[:, :, :-1], (0, 0, 1, 0), value=1.0)) @ S
        u = torch.linalg.solve_triangular(-match(a, b, before=True), u, upper=False, unitriangular=True)
        o = o + match(q, b) @ u
        writes.append((b, u))
    if S is not None:
        o = o + (q if since_start is None else q * since_start) @ S
        S = S if since_start is None else since_start[:, :, -1, :, None] * S
    for key, value in writes:
        kept = (key if fading is None else key * fading[:, :, -1]).mT @ value
        S = kept if S is None else S + kept
    assert S is not None
    return o, S


def _segment_products(w: Float[Tensor, "batch M t n"]) -> Float[Tensor, "batch M t t n"]:
    """Π_{τ<s<=t} w_s for τ <= t, and 0 above the diagonal; each product is taken on its own, so that w may be 0."""
    t = w.shape[-2]
    lower = torch.ones(t, t, dtype=torch.bool, device=w.device).tril()
    factors = torch.where(lower.tril(-1)[..., None], w[..., :, None, :], 1.0)
    return torch.where(lower[..., None], factors.cumprod(dim=-3), 0.0)
