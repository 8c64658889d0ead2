"""The delta scan on CUDA by flash-linear-attention's Triton kernel `chunk_dplr_delta_rule`, whose recurrence is ours.

Two things differ in form. The kernel takes log w, and 0 has no logarithm: w below `SMALLEST` counts as
`SMALLEST`, and the gradient by it is 0. What a factor of 1e-13 leaves of a state is below the precision of
float32. And the kernel's matrix products need N and P in multiples of 16, so both are padded with zeros.

Precision: what Triton's matrix products give. On GPUs with tf32 that is about three digits for float32 inputs, unless
TRITON_F32_DEFAULT=ieee is set. float64 is not taken.
"""

import warnings
from functools import cache
from importlib.util import find_spec

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

SMALLEST = 1e-13
MULTIPLE = 16  # of N and P, for Triton's matrix products


@cache
def fla_missing() -> str | None:
    """What keeps flash-linear-attention's kernels from being used, apart from the device; None if nothing does."""
    packages = {"triton": "triton", "fla": "fla-core"}
    return next((f"{name} is not installed" for module, name in packages.items() if find_spec(module) is None), None)


def runs_on_fla(like: Tensor) -> bool:
    """Whether tensors of this device and precision are scanned by the kernel unless another form is named."""
    return like.is_cuda and like.dtype != torch.float64 and fla_missing() is None


def delta_scan_fla(
    q: Float[Tensor, "batch L M N"],
    k: Float[Tensor, "batch L M N"],
    v: Float[Tensor, "batch L M P"],
    w: Float[Tensor, "batch L M #N"] | None = None,
    a: Float[Tensor, "batch L M N"] | None = None,
    b: Float[Tensor, "batch L M N"] | None = None,
) -> Float[Tensor, "batch L M P"]:
    """o after every token.   Holds for: first derivatives, float32, bfloat16 and float16."""
    from fla.ops.generalized_delta_rule.dplr.chunk import chunk_dplr_delta_rule

    N, P = k.shape[-1], v.shape[-1]
    log_w = torch.zeros_like(k) if w is None else w.clamp(min=SMALLEST).log().expand_as(k)
    none = torch.zeros_like(k)
    rows = [pad(x, (0, -N % MULTIPLE)) for x in (q, k, none if a is None else a, none if b is None else b, log_w)]
    q_rows, k_rows, a_rows, b_rows, log_rows = rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of float32, which the docstring above is about
        o, _ = chunk_dplr_delta_rule(q_rows, k_rows, pad(v, (0, -P % MULTIPLE)), a_rows, b_rows, log_rows, scale=1.0)
    return torch.narrow(o, -1, 0, P)
