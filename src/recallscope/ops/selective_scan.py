"""S6, the scan of full Mamba: h_t = Ā_t ⊙ h_{t-1} + x̂_t B̄_t and ŷ_t = h_t C_t, with Ā = exp(Δ A) and B̄ = Δ B.

`selective_scan` is the door, and picks who computes: the printed recurrence (`selective_scan_loop`), the fast
torch form (`selective_scan_torch.py`), or on CUDA mamba-ssm's kernel, if it is installed. None of them
divides by the running product of Ā: that tempting shortcut loses all digits once Ā decays.
"""

import importlib.util
import logging
from functools import cache
from typing import Literal

import torch
from einops import einsum
from jaxtyping import Float
from torch import Tensor

from recallscope.ops.selective_scan_torch import selective_scan_torch

ScanForm = Literal["auto", "loop", "torch"]
KERNEL_STATE_LIMIT = 256  # mamba-ssm's CUDA kernel holds no larger state

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
    if form == "loop":
        y_hat = selective_scan_loop(x_hat, delta, A, B, C)
    elif form == "auto" and _kernel_fits(x_hat, A):
        _say_once("mamba-ssm's CUDA kernel")
        y_hat = _kernel_scan(x_hat, delta, A, B, C)
    else:
        _say_once("recallscope's torch form")
        y_hat = selective_scan_torch(x_hat, delta, A, B, C)
    return y_hat if skip is None else y_hat + skip * x_hat


@cache
def _kernel_installed() -> bool:
    return importlib.util.find_spec("mamba_ssm") is not None


def _kernel_fits(x_hat: Tensor, A: Tensor) -> bool:
    """mamba-ssm's kernel runs on CUDA, in float32 and below, for at most 256 state entries per channel."""
    return x_hat.is_cuda and x_hat.dtype != torch.float64 and A.shape[-1] <= KERNEL_STATE_LIMIT and _kernel_installed()


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
