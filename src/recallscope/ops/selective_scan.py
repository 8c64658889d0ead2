"""S6, the scan of full Mamba: h_t = Ā_t ⊙ h_{t-1} + x̂_t B̄_t and ŷ_t = h_t C_t, with Ā = exp(Δ A) and B̄ = Δ B.

`selective_scan` is the door, and picks who computes: the printed recurrence (`selective_scan_loop`), our C kernel
(`selective_scan_compiled.py`) on a CPU with a compiler, the torch form (`selective_scan_torch.py`) without, or
on CUDA mamba-ssm's kernel, if it is installed. `form` forces the choice, and where it says `auto` the environment
variable RECALLSCOPE_SCAN may. None of them divides by the running product of Ā: that tempting shortcut loses all
digits once Ā decays.
"""

import importlib.util
import logging
import os
from collections.abc import Callable
from functools import cache
from typing import Literal, get_args

import torch
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import softplus

from recallscope.ops.compiled import FORM_VARIABLE, available, fits
from recallscope.ops.linear_scan import at_positions
from recallscope.ops.selective_scan_compiled import selective_scan_compiled
from recallscope.ops.selective_scan_torch import selective_scan_torch

ScanForm = Literal["auto", "loop", "torch", "compiled"]
KERNEL_STATE_LIMIT = 256  # mamba-ssm's CUDA kernel holds no larger state

WHO = {
    "kernel": "mamba-ssm's CUDA kernel",
    "compiled": "recallscope's C kernel",
    "torch": "recallscope's torch form",
    "loop": "the printed recurrence",
}

logger = logging.getLogger(__name__)


def selective_states_loop(
    x_hat: Float[Tensor, "*batch L D_in"],
    delta: Float[Tensor, "*batch L D_in"],
    A: Float[Tensor, "D_in N"],
    B: Float[Tensor, "*batch L N"],
) -> Float[Tensor, "*batch L D_in N"]:
    """State after every token, h_t = Ā_t ⊙ h_{t-1} + x̂_t B̄_t.

    Paper: Eq. 2 (`eq:TimeVariantMatrices1`) and Eq. 3 (`eq:original-ssm`).
    """
    h = torch.zeros_like(einsum(x_hat[..., 0, :], B[..., 0, :], "... D_in, ... N -> ... D_in N"))
    states = []
    for t in range(x_hat.shape[-2]):
        delta_t, x_t, B_t = delta[..., t, :, None], x_hat[..., t, :, None], B[..., t, None, :]
        A_bar, B_bar = torch.exp(delta_t * A), delta_t * B_t
        h = A_bar * h + x_t * B_bar
        states.append(h)
    return torch.stack(states, dim=-3)


def selective_scan_loop(
    x_hat: Float[Tensor, "*batch L D_in"],
    delta: Float[Tensor, "*batch L D_in"],
    A: Float[Tensor, "D_in N"],
    B: Float[Tensor, "*batch L N"],
    C: Float[Tensor, "*batch L N"],
) -> Float[Tensor, "*batch L D_in"]:
    """The recurrence as printed, every state kept: the plain twin.   Paper: Eq. 2-3 (`eq:original-ssm`)."""
    h = selective_states_loop(x_hat, delta, A, B)
    return einsum(h, C, "... L D_in N, ... L N -> ... L D_in")


def selective_scan(
    x_hat: Float[Tensor, "*batch L D_in"],
    delta: Float[Tensor, "*batch L D_in"],
    A: Float[Tensor, "D_in N"],
    B: Float[Tensor, "*batch L N"],
    C: Float[Tensor, "*batch L N"],
    skip: Float[Tensor, " D_in"] | None = None,
    *,
    form: ScanForm = "auto",
) -> Float[Tensor, "*batch L D_in"]:
    """ŷ after every token of the selective SSM, plus `skip` times the input.

    Paper: Eq. 2 (`eq:TimeVariantMatrices1`) and Eq. 3 (`eq:original-ssm`).
    Departs: the print leaves out mamba-ssm's skip weight, ŷ += D x̂. It is `skip` here, as D is the embedding.
    """
    chosen = pick_form(x_hat, A.shape[1], form)
    if chosen == "compiled":
        return selective_scan_compiled(x_hat, delta, A, B, C, skip)
    if chosen == "loop":
        y_hat = selective_scan_loop(x_hat, delta, A, B, C)
    elif chosen == "kernel":
        y_hat = _kernel_scan(x_hat, delta, A, B, C)
    else:
        y_hat = selective_scan_torch(x_hat, delta, A, B, C)
    return y_hat if skip is None else y_hat + skip * x_hat


def selective_read_at(
    x_hat: Float[Tensor, "batch L D_in"],
    delta: Float[Tensor, "batch L D_in"],
    A: Float[Tensor, "D_in N"],
    B: Float[Tensor, "batch L N"],
    C_q: Float[Tensor, "batch Q N"],
    positions: Int[Tensor, "batch Q"],
    skip: Float[Tensor, " D_in"] | None = None,
    *,
    delta_bias: Float[Tensor, " D_in"],
    form: ScanForm = "auto",
) -> Float[Tensor, "batch Q D_in"]:
    """ŷ at the given positions, from C at those positions, with Δ = softplus(delta + delta_bias).

    The state passes every token on the way; what is saved is C and ŷ elsewhere. Only the C kernel knows how:
    the others read everywhere with C = 0 where nobody asks, once more for every second question about a token.

    Paper: Eq. 3 (`eq:original-ssm`), read where the task asks (Sec. 2, `par:mqar-definition`).
    """
    if pick_form(x_hat, A.shape[1], form) == "compiled":
        return selective_scan_compiled(x_hat, delta, A, B, C_q, skip, delta_bias=delta_bias, positions=positions)
    steps = softplus(delta + delta_bias)

    def scan(C: Tensor) -> Tensor:
        return selective_scan(x_hat, steps, A, B, C, skip, form=form)

    return in_turns(scan, C_q, positions, *x_hat.shape[1:])


def in_turns(
    scan: Callable[[Tensor], Tensor], C_q: Float[Tensor, "batch Q N"], positions: Int[Tensor, "batch Q"], L: int, P: int
) -> Float[Tensor, "batch Q P"]:
    """Read at positions by a scan that reads everywhere, `batch L N` to `batch L P`.

    C is 0 where nobody asks; there is one more scan for every second question about a token.
    """
    same = positions[:, :, None] == positions[:, None, :]
    rank = same.tril(-1).sum(dim=-1)  # how many questions before this one ask about the same token
    rows = torch.arange(len(positions), device=positions.device)[:, None].expand_as(positions)
    y_q = C_q.new_zeros(*positions.shape, P)
    for turn in range(int(rank.max()) + 1 if rank.numel() else 0):
        now = rank == turn
        C = C_q.new_zeros(len(C_q), L, C_q.shape[-1]).index_put((rows[now], positions[now]), C_q[now])
        y_q = torch.where(now[..., None], at_positions(scan(C), positions), y_q)
    return y_q


def pick_form(like: Tensor, state_dim: int, form: ScanForm = "auto") -> Literal["loop", "torch", "compiled", "kernel"]:
    """Who scans tensors of this device and precision: what `form` says, else the environment, else the fastest."""
    asked = os.environ.get(FORM_VARIABLE, "auto") if form == "auto" else form
    if asked not in get_args(ScanForm):
        raise ValueError(f"{FORM_VARIABLE}={asked!r} must be one of {', '.join(get_args(ScanForm))}.")
    if asked == "auto":
        if _kernel_fits(like, state_dim):
            asked = "kernel"
        elif fits(like) and available():
            asked = "compiled"
        else:
            asked = "torch"
    if form == "auto" and not torch.compiler.is_compiling():
        _say_once(WHO[asked])
    return asked  # type: ignore[return-value]


@cache
def _kernel_installed() -> bool:
    return importlib.util.find_spec("mamba_ssm") is not None


def _kernel_fits(like: Tensor, state_dim: int) -> bool:
    """mamba-ssm's kernel runs on CUDA, in float32 and below, for at most 256 state entries per channel."""
    return like.is_cuda and like.dtype != torch.float64 and state_dim <= KERNEL_STATE_LIMIT and _kernel_installed()


def _kernel_scan(x_hat: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

    # the kernel wants (batch, channel, time), one batch axis, and A in float32
    time_last = [v.reshape(-1, *v.shape[-2:]).transpose(-1, -2).contiguous() for v in (x_hat, delta, B, C)]
    x, dt, B_last, C_last = time_last
    y_hat = selective_scan_fn(x, dt, A.float(), B_last, C_last)
    return y_hat.transpose(-1, -2).reshape(x_hat.shape)


@cache
def _say_once(who: str) -> None:
    logger.info("selective scan: %s", who)
