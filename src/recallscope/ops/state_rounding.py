"""Rounding a recurrent state to few bits: integers with an absmax or a fixed scale, and small floats.

`round_state` is the door. A number x becomes d Q(x / d): d is the scale of its group, and Q rounds to a whole number,
or to a float of few bits. Nearest rounding takes ties to even and agrees bit for bit with torch's own bfloat16,
float16, float8_e4m3fn and float8_e5m2 up to their largest number; beyond, where torch has infinity or not-a-number,
it stays at the largest, as kernels do. Stochastic rounding goes up with a chance equal to the distance from below.
"""

import ctypes

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from recallscope.ops.compiled import address, call, fields, fits, library
from recallscope.state_precision import Format, StatePrecision

TORCH_DTYPES = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp8-e4m3": torch.float8_e4m3fn,
    "fp8-e5m2": torch.float8_e5m2,
}
BLOCKS = {"block16": 16, "block32": 32}


def group_absmax(state: Float[Tensor, "*heads P N"], scale: str) -> Float[Tensor, "*heads #P #N"]:
    """The largest absolute value of each scale group, to be broadcast over the state; of blocks one per number."""
    if scale in BLOCKS:
        N, size = state.shape[-1], BLOCKS[scale]
        blocks = pad(state.abs(), (0, -N % size)).unflatten(-1, (-1, size)).amax(dim=-1)
        return blocks.repeat_interleave(size, dim=-1)[..., :N]
    over: dict[str, int | tuple[int, int]] = {"tensor": (-2, -1), "row": -1, "column": -2}
    return torch.linalg.vector_norm(state, torch.inf, dim=over[scale], keepdim=True)


def step_of(state: Float[Tensor, "*heads P N"], precision: StatePrecision) -> Float[Tensor, "*#heads #P #N"]:
    """d: what one unit of the format stands for; 1 where a group holds nothing, or where there is no scale."""
    if precision.scale in ("none", "fixed"):
        return state.new_full((1,) * state.ndim, precision.step or 1.0)
    d = group_absmax(state, precision.scale) / precision.number.full_scale
    return torch.where(d > 0, d, 1.0)


def spacing(x: Float[Tensor, "*shape"], number: Format) -> Float[Tensor, "*#shape"]:
    """Distance between neighbouring numbers of a format at x, in its own unit: 1, or one in the last place."""
    if not number.is_float:
        return x.new_ones(())
    exponent = torch.frexp(x).exponent - 1
    return torch.ldexp(torch.ones_like(x), exponent.clamp(min=number.least_exponent) - number.mantissa)


def round_nearest(x: Float[Tensor, "*shape"], precision: StatePrecision) -> Float[Tensor, "*shape"]:
    """Q to the nearest, in the format's unit; by torch's own dtype where it has one."""
    number, dtype = precision.number, TORCH_DTYPES.get(precision.format)
    if dtype is not None and x.dtype == torch.float32:
        return x.clamp(-number.largest, number.largest).to(dtype).to(x.dtype)
    return round_nearest_plain(x, number)


def round_nearest_plain(x: Float[Tensor, "*shape"], number: Format) -> Float[Tensor, "*shape"]:
    """The same from the definition: count in steps of the local spacing, ties to even."""
    if not number.is_float:
        return torch.round(x).clamp_(-number.levels, number.levels)
    unit = spacing(x, number)
    return (torch.round(x / unit) * unit).clamp_(-number.largest, number.largest)


def round_stochastic(
    x: Float[Tensor, "*shape"], number: Format, chance: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """Q to one of the two neighbours: up where a uniform number is below the distance from the lower one."""
    unit = spacing(x, number)
    counted = x / unit
    below = counted.floor()
    up: Bool[Tensor, "*shape"] = chance < counted - below
    return ((below + up) * unit).clamp_(-number.full_scale, number.full_scale)


def round_state(
    state: Float[Tensor, "*heads P N"], precision: StatePrecision, generator: torch.Generator
) -> Float[Tensor, "*heads P N"]:
    """The numbers that are stored, as floats again; the generator decides where rounding is stochastic.

    Integers with a scale per head or row are rounded by our C kernel where it can be built.
    """
    chance = None
    if precision.rounding == "stochastic":
        chance = torch.rand(state.shape, generator=generator, dtype=state.dtype, device=state.device)
    if not precision.number.is_float and precision.scale in ("tensor", "row") and fits(state) and library() is not None:
        return _round_compiled(state.contiguous(), precision, chance)
    return round_state_torch(state, precision, chance)


def round_state_torch(
    state: Float[Tensor, "*heads P N"], precision: StatePrecision, chance: Float[Tensor, "*heads P N"] | None
) -> Float[Tensor, "*heads P N"]:
    """The plain twin, for every format; `chance` are uniform numbers where rounding is stochastic."""
    d = None if precision.scale == "none" else step_of(state, precision)
    x = state if d is None else state / d
    rounded = round_nearest(x, precision) if chance is None else round_stochastic(x, precision.number, chance)
    return rounded if d is None else rounded.mul_(d)


class RoundArguments(ctypes.Structure):
    """`round_arguments` of csrc/arguments.h."""

    _fields_ = fields("groups size levels", "x chance out")


def _round_compiled(state: Tensor, precision: StatePrecision, chance: Tensor | None) -> Tensor:
    out = torch.empty_like(state)
    size = state.shape[-1] * (state.shape[-2] if precision.scale == "tensor" else 1)
    if state.numel():
        groups, levels = state.numel() // size, precision.number.levels
        call("round_groups", RoundArguments(groups, size, levels, *map(address, (state, chance, out))), state.dtype)
    return out


def kept_residual(
    state: Float[Tensor, "*heads P N"], stored: Float[Tensor, "*heads P N"], precision: StatePrecision
) -> Float[Tensor, "*heads P N"]:
    """What error feedback carries on: what rounding took off, exactly or in r bits.

    It lies within half a spacing on either side, where r bits have 2^r - 1 codes: steps of spacing / (2^r - 2).
    """
    lost = state - stored
    if precision.residual_bits is None:
        return lost
    d = step_of(state, precision)
    unit = d * spacing(state / d, precision.number) / (2**precision.residual_bits - 2)
    most = 2 ** (precision.residual_bits - 1) - 1
    return (lost / unit).round_().clamp_(-most, most) * unit
