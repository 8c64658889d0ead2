"""The written-out forward and backward pass of the selective scan against the printed recurrence, Eq. 2-3."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import softplus
from twins import assert_twins, draw, values_and_gradients

from recallscope.ops import selective_scan, selective_scan_loop, selective_scan_torch

shapes = st.tuples(*(st.integers(1, n) for n in (5, 9, 4, 4)))


def draw_inputs(batch: int, L: int, D_in: int, N: int, seed: int, delta_shift: float = 0.0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        "x_hat": draw(g, batch, L, D_in),
        "delta": softplus(draw(g, batch, L, D_in) + delta_shift),
        "A": -draw(g, D_in, N).exp(),
        "B": draw(g, batch, L, N),
        "C": draw(g, batch, L, N),
    }


@given(shape=shapes, rows=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_the_torch_form_is_the_loop_however_the_batch_is_split(
    shape: tuple[int, int, int, int], rows: int, seed: int
) -> None:
    assert_twins(partial(selective_scan_torch, rows=rows), selective_scan_loop, draw_inputs(*shape, seed))


@given(shape=shapes, seed=st.integers(0, 2**31))
def test_the_skip_weight_adds_the_input(shape: tuple[int, int, int, int], seed: int) -> None:
    inputs = draw_inputs(*shape, seed)
    inputs["skip"] = draw(torch.Generator().manual_seed(seed), shape[2])
    assert_twins(partial(selective_scan, form="torch"), partial(selective_scan, form="loop"), inputs)
    bare = selective_scan(**{name: v for name, v in inputs.items() if name != "skip"})
    torch.testing.assert_close(selective_scan(**inputs), bare + inputs["skip"] * inputs["x_hat"])


@pytest.mark.parametrize("delta_shift", [-12.0, 5.0, 80.0])
def test_it_holds_where_states_are_kept_and_where_they_are_wiped(delta_shift: float) -> None:
    """Δ near 0 (nothing decays, nothing is written) up to Δ near 80 (Ā underflows to 0)."""
    assert_twins(selective_scan_torch, selective_scan_loop, draw_inputs(3, 20, 4, 5, seed=1, delta_shift=delta_shift))


def test_it_holds_for_long_sequences() -> None:
    """Where a scan that divides by the running product of Ā has long lost every digit."""
    assert_twins(selective_scan_torch, selective_scan_loop, draw_inputs(2, 3000, 2, 3, seed=2, delta_shift=-3.0))


def test_float32_loses_no_more_than_rounding() -> None:
    inputs = draw_inputs(2, 400, 8, 4, seed=3)
    weight = draw(torch.Generator().manual_seed(4), 2, 400, 8)
    exact = values_and_gradients(selective_scan_loop, inputs, weight)
    single = {name: v.float() for name, v in inputs.items()}
    ours = values_and_gradients(selective_scan_torch, single, weight.float())
    for name, expected in exact.items():
        assert (ours[name] - expected).abs().max() <= 1e-5 * expected.abs().max(), name


def test_rows_beyond_the_first_buffer_do_not_see_what_it_held() -> None:
    """Seven rows in buffers of three: the last slice is shorter than the buffer it reuses."""
    inputs = draw_inputs(7, 5, 3, 2, seed=5)
    whole = selective_scan_torch(**inputs, rows=3)
    alone = [selective_scan_torch(**{n: v if n == "A" else v[i] for n, v in inputs.items()}) for i in range(7)]
    torch.testing.assert_close(whole, torch.stack(alone))
