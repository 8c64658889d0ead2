"""Rounding of states: formats agree with torch's dtypes and with a plain loop, scales with their groups."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from closeness import seeded
from recallscope.ops.state_rounding import (
    TORCH_DTYPES,
    group_absmax,
    kept_residual,
    round_nearest_plain,
    round_state,
    round_state_torch,
    spacing,
    step_of,
)
from recallscope.state_precision import FORMATS, StatePrecision


def some_floats(largest: float) -> Tensor:
    """Of every binade, halves between neighbours among them, both signs, zero and subnormals."""
    exponents = torch.randint(-30, 16, (20_000,), generator=seeded())
    drawn = torch.randn(20_000, generator=seeded()) * torch.exp2(exponents)
    grid = torch.arange(-600.0, 600.0, 0.25)
    tiny = torch.arange(-64.0, 64.0) * 2.0**-18
    return torch.cat([drawn, grid, tiny, torch.zeros(1)]).clamp(-largest, largest)


@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_floats_are_torch_s_dtypes_bit_for_bit(name):
    x = some_floats(FORMATS[name].largest)
    theirs = x.to(TORCH_DTYPES[name]).float()
    assert torch.equal(round_nearest_plain(x, FORMATS[name]), theirs)
    assert torch.equal(round_state(x[None], StatePrecision.of(name), seeded())[0], theirs)


@pytest.mark.parametrize("name", [*TORCH_DTYPES, "fp4-e2m1"])
def test_what_is_too_large_stays_at_the_largest_number(name):
    x = torch.tensor([[1e38, -3.4e38, math.inf]])
    largest = FORMATS[name].largest
    stored = round_state(x, StatePrecision.of(name, "none"), seeded())
    assert torch.equal(stored[0].abs().clamp(max=largest), stored[0].abs())
    assert stored[0, 2] == largest


def test_fp4_has_the_eight_sizes_of_e2m1():
    x = torch.linspace(-8, 8, 1601)[None]
    stored = round_state(x, StatePrecision.of("fp4-e2m1", "none"), seeded())
    assert stored.abs().unique().tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    grid = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    nearest = (x[0].abs()[:, None] - grid).abs().min(dim=1).values
    torch.testing.assert_close((x - stored)[0].abs(), nearest, rtol=0, atol=0)


def by_hand(state: Tensor, bits: int, groups: list[list[tuple[int, int]]]) -> Tensor:
    """Every group by itself, every number by itself; Python rounds ties to even as well."""
    out, q = torch.zeros_like(state), 2 ** (bits - 1) - 1
    for group in groups:
        d = max(abs(state[at]) for at in group) / q
        for at in group:
            out[at] = round(float(state[at] / d)) * d if d > 0 else 0.0
    return out


def groups_of(scale: str, P: int, N: int) -> list[list[tuple[int, int]]]:
    size = {"block16": 16, "block32": 32}.get(scale, N)
    everywhere = list(itertools.product(range(P), range(N)))
    name = {"tensor": lambda p, n: 0, "column": lambda p, n: n}.get(scale, lambda p, n: (p, n // size))
    return [[at for at in everywhere if name(*at) == one] for one in dict.fromkeys(name(*at) for at in everywhere)]


@pytest.mark.parametrize("scale", ["tensor", "row", "column", "block16", "block32"])
@pytest.mark.parametrize("bits", [2, 3, 5, 8, 16])
def test_integers_are_the_plain_loop(scale, bits):
    state = torch.randn(5, 41, generator=seeded(bits), dtype=torch.float64)
    state[3] = 0
    stored = round_state(state[None], StatePrecision.of(f"int{bits}", scale), seeded())[0]
    assert torch.equal(stored, by_hand(state, bits, groups_of(scale, 5, 41)))
    codes = stored / step_of(state, StatePrecision.of(f"int{bits}", scale))
    assert codes.abs().max() <= 2 ** (bits - 1) - 1 + 1e-9
    assert not stored[3].any()


def test_a_fixed_scale_clips():
    precision = StatePrecision.of("int4", "fixed", step=0.5)
    state = torch.tensor([[0.24, 0.26, -0.75, 9.0, -9.0]])
    assert round_state(state, precision, seeded())[0].tolist() == [0, 0.5, -1.0, 3.5, -3.5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", ["tensor", "row"])
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("name", ["int2", "int4", "int8", "int16"])
def test_the_kernel_is_the_plain_form_bit_for_bit(name, rounding, scale, dtype):
    state = torch.randn(3, 2, 7, 19, generator=seeded(), dtype=dtype)
    state *= torch.exp2(torch.arange(7.0, dtype=dtype))[:, None]
    state[1, 0] = 0
    precision = StatePrecision.of(name, scale, rounding=rounding)
    chance = None
    if rounding == "stochastic":
        chance = torch.rand(state.shape, generator=seeded(5), dtype=dtype)
    assert torch.equal(round_state(state, precision, seeded(5)), round_state_torch(state, precision, chance))


@pytest.mark.parametrize("name", ["int3", "fp8-e5m2", "fp4-e2m1", "bf16"])
def test_stochastic_rounding_takes_a_neighbour_and_is_right_on_average(name):
    """Means of 40000 draws: beyond six standard errors once in 10^8, for each of the 40 numbers."""
    precision = StatePrecision.of(name, rounding="stochastic")
    state, g, draws = torch.randn(1, 40, generator=seeded(), dtype=torch.float64), seeded(1), 40_000
    stored = round_state(state.expand(draws, 1, 40), precision, g)[:, 0]
    d = step_of(state, precision)
    unit = (d * spacing(state / d, precision.number)).expand(1, 40)[0]
    assert ((stored - state).abs() < unit * (1 + 1e-9)).all()
    assert all(len(column.unique()) <= 2 for column in stored.T)
    assert ((stored.mean(dim=0) - state[0]).abs() <= 6 * 0.5 * unit / draws**0.5).all()


def test_a_residual_in_bits_is_as_fine_as_it_says():
    """Of r bits there are 2^r - 1 codes within half a step, so that at most half of step / (2^r - 2) is lost."""
    state = torch.randn(4, 3, 5, 64, generator=seeded(), dtype=torch.float64)
    for bits in (2, 3, 4, 8):
        precision = StatePrecision.of("int8", "row", rounding="error-feedback", residual_bits=bits)
        stored = round_state(state, precision, seeded())
        kept = kept_residual(state, stored, precision)
        d = step_of(state, precision)
        assert ((state - stored - kept).abs() <= d / (2**bits - 2) / 2 * (1 + 1e-9)).all()
        assert len((kept / d).round(decimals=9).unique()) <= 2**bits - 1
    exact = StatePrecision.of("int8", "row", rounding="error-feedback")
    assert torch.equal(kept_residual(state, stored, exact), state - stored)


def test_idle_integers_keep_their_codes():
    """A state that is stored again, faded as a whole or not, has the same codes."""
    state = torch.randn(2, 3, 8, 16, generator=seeded(), dtype=torch.float64)
    for scale in ("tensor", "row", "column", "block16"):
        precision = StatePrecision.of("int5", scale)
        once = round_state(state, precision, seeded())
        again = round_state(0.9 * once, precision, seeded())
        torch.testing.assert_close(again, 0.9 * once, rtol=1e-14, atol=0)


def test_group_absmax_of_blocks_covers_a_short_last_block():
    state = torch.arange(1.0, 21.0)[None]
    assert group_absmax(state, "block16")[0].tolist() == [16.0] * 16 + [20.0] * 4


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"format": "int1"}, "not a format"),
        ({"format": "int88"}, "Did you mean int8"),
        ({"format": "int8", "scale": "none"}, "need a scale"),
        ({"format": "int8", "scale": "fixed"}, "needs its step"),
        ({"format": "int8", "step": 0.1}, "needs its step"),
        ({"format": "int8", "residual_bits": 4}, "only error-feedback"),
        ({"format": "int8", "rounding": "error-feedback", "residual_bits": 9}, "wider than the state"),
        ({"format": "int8", "rounding": "error-feedback", "every": "once"}, "nothing is carried on"),
        ({"format": "int8", "rounding": "up"}, "nearest"),
        ({"format": "int8", "every": 0}, "greater than 0"),
    ],
)
def test_what_does_not_fit_together_is_refused(fields, said):
    with pytest.raises(ValueError, match=said):
        StatePrecision.of(fields.pop("format"), **fields)


def test_equal_seeds_round_alike():
    state = torch.randn(6, 8, generator=seeded())
    precision = StatePrecision.of("int4", rounding="stochastic")
    one, two, other = (round_state(state, precision, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)
