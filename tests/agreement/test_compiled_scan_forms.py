"""The C kernel against the printed recurrence, Eq. 2-3: values and every gradient, over random shapes and numbers."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import softplus
from twins import assert_twins, draw, values_and_gradients

from recallscope.ops import (
    at_positions,
    selective_read_at,
    selective_scan,
    selective_scan_compiled,
    selective_scan_loop,
)

batches, lengths, states = st.integers(1, 4), st.integers(1, 40), st.integers(1, 20)
channels = st.one_of(st.integers(1, 8), st.sampled_from([31, 32, 33, 63, 64, 65, 130]))
shapes = st.tuples(batches, lengths, channels, states)
seeds = st.integers(0, 2**31)


def draw_inputs(
    batch: int, L: int, D_in: int, N: int, seed: int, delta_shift: float = 0.0, dtype: torch.dtype = torch.float64
) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        "x_hat": draw(g, batch, L, D_in, dtype=dtype),
        "delta": softplus(draw(g, batch, L, D_in, dtype=dtype) + delta_shift),
        "A": -draw(g, D_in, N, dtype=dtype).exp(),
        "B": draw(g, batch, L, N, dtype=dtype),
        "C": draw(g, batch, L, N, dtype=dtype),
    }


def loop_with_softplus(delta: Tensor, delta_bias: Tensor, skip: Tensor, **inputs: Tensor) -> Tensor:
    return selective_scan(delta=softplus(delta + delta_bias), skip=skip, form="loop", **inputs)


def loop_read_at(positions: Tensor, C_q: Tensor, x_hat: Tensor, **inputs: Tensor) -> Tensor:
    """One query after the other: C everywhere equal to the query's, read at its token."""
    L = x_hat.shape[1]
    columns = []
    for q in range(positions.shape[1]):
        C = C_q[:, q : q + 1].expand(-1, L, -1)
        y_hat = loop_with_softplus(x_hat=x_hat, C=C, **inputs)
        columns.append(at_positions(y_hat, positions[:, q : q + 1]))
    return torch.cat(columns, dim=1)


@given(shape=shapes, seed=seeds)
def test_the_kernel_is_the_loop(shape: tuple[int, int, int, int], seed: int) -> None:
    assert_twins(selective_scan_compiled, selective_scan_loop, draw_inputs(*shape, seed))


@given(shape=shapes, seed=seeds)
def test_softplus_and_skip_are_fused_without_a_trace(shape: tuple[int, int, int, int], seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    inputs = draw_inputs(*shape, seed) | {"skip": draw(g, shape[2]), "delta_bias": 5 * draw(g, shape[2])}
    inputs["delta"] = 5 * draw(g, *inputs["delta"].shape)
    assert_twins(selective_scan_compiled, loop_with_softplus, inputs)


@pytest.mark.parametrize("form", ["compiled", "torch"])
@given(shape=shapes, Q=st.integers(1, 6), seed=seeds)
def test_reading_at_positions_is_the_loop_there(form: str, shape: tuple[int, int, int, int], Q: int, seed: int) -> None:
    """Positions in any order, some of them twice."""
    batch, L, D_in, N = shape
    g = torch.Generator().manual_seed(seed)
    inputs = draw_inputs(*shape, seed) | {"skip": draw(g, D_in), "delta_bias": draw(g, D_in)}
    del inputs["C"]
    inputs |= {"C_q": draw(g, batch, Q, N), "positions": torch.randint(0, L, (batch, Q), generator=g)}
    assert_twins(partial(selective_read_at, form=form), loop_read_at, inputs)


@pytest.mark.parametrize("delta_shift", [-12.0, 5.0, 80.0, 700.0])
def test_it_holds_where_states_are_kept_and_where_they_are_wiped(delta_shift: float) -> None:
    """Δ near 0 (nothing decays, nothing is written) up to Δ near 700 (Ā underflows to 0)."""
    inputs = draw_inputs(3, 40, 34, 5, seed=1, delta_shift=delta_shift)
    assert_twins(selective_scan_compiled, selective_scan_loop, inputs)


def test_it_holds_where_states_grow() -> None:
    """A > 0 is no Mamba's, but nothing in Eq. 2 forbids it: h grows to e^30."""
    inputs = draw_inputs(2, 30, 5, 3, seed=3)
    inputs["A"], inputs["delta"] = inputs["A"].abs().clamp(max=2.0), torch.full_like(inputs["delta"], 0.5)
    assert_twins(selective_scan_compiled, selective_scan_loop, inputs)


@pytest.mark.parametrize("N", [1, 3, 70])
def test_it_holds_for_long_sequences(N: int) -> None:
    """Many chunks, the last one short; where a scan that divides by the product of Ā has lost every digit."""
    inputs = draw_inputs(2, 3001 if N < 70 else 300, 2, N, seed=2, delta_shift=-3.0)
    assert_twins(selective_scan_compiled, selective_scan_loop, inputs)


def test_float32_loses_no_more_than_rounding() -> None:
    inputs = draw_inputs(2, 400, 40, 4, seed=3)
    weight = draw(torch.Generator().manual_seed(4), 2, 400, 40)
    exact = values_and_gradients(selective_scan_loop, inputs, weight)
    single = {name: v.float() for name, v in inputs.items()}
    ours = values_and_gradients(selective_scan_compiled, single, weight.float())
    for name, expected in exact.items():
        assert (ours[name] - expected).abs().max() <= 1e-5 * expected.abs().max(), name
