"""The simplified SSM: what it stores and when it can be read; loop = attention = chunks (Eq. 4), gradients included."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from closeness import assert_near, assert_twins, draw
from recallscope.ops.linear_scan import CHUNK, at_positions, hidden_states, linear_scan, read_at, scan_loop

ALL_FORMS = pytest.mark.parametrize("form", [scan_loop, linear_scan, partial(linear_scan, chunk=2)])
shapes = st.tuples(st.integers(1, 3), st.integers(1, 10), st.integers(1, 5), st.integers(1, 5))


def draw_inputs(batch: int, L: int, D_in: int, N: int, seed: int) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {"x_hat": draw(g, batch, L, D_in), "B": draw(g, batch, L, N), "C": draw(g, batch, L, N)}


@given(shape=shapes, chunk=st.integers(1, 14), seed=st.integers(0, 2**31))
def test_every_chunk_gives_the_loop(shape: tuple[int, int, int, int], chunk: int, seed: int) -> None:
    """Chunks that divide L, that leave some tokens over, that are longer than the sequence."""
    assert_twins(partial(linear_scan, chunk=chunk), scan_loop, draw_inputs(*shape, seed))


@pytest.mark.parametrize("L", [CHUNK - 1, CHUNK, CHUNK + 1])
def test_short_and_long_sequences_meet_where_the_form_changes(L: int) -> None:
    assert_twins(linear_scan, scan_loop, draw_inputs(1, L, 2, 3, seed=L))


def test_sequences_need_no_batch_axis_and_may_have_two() -> None:
    inputs = draw_inputs(6, 5, 3, 2, seed=0)
    together = linear_scan(**inputs)
    alone = linear_scan(**{name: v[0] for name, v in inputs.items()})
    folded = linear_scan(**{name: v.unflatten(0, (2, 3)) for name, v in inputs.items()})
    assert_near(alone, together[0])
    assert_near(folded.flatten(0, 1), together)


@given(shape=shapes, num_queries=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_reading_at_the_queries_is_the_loop_gathered(
    shape: tuple[int, int, int, int], num_queries: int, seed: int
) -> None:
    """In any order, and with a position asked twice."""
    inputs = draw_inputs(*shape, seed)
    positions = torch.randint(0, shape[1], (shape[0], num_queries), generator=torch.Generator().manual_seed(seed))

    def plain(x_hat: Tensor, B: Tensor, C: Tensor) -> Tensor:
        return at_positions(scan_loop(x_hat, B, C), positions)

    def fast(x_hat: Tensor, B: Tensor, C: Tensor) -> Tensor:
        return read_at(x_hat, B, at_positions(C, positions), positions)

    assert_twins(fast, plain, inputs)


def drawn(*shape: int, seed: int = 0, grad: bool = False) -> Tensor:
    return draw(torch.Generator().manual_seed(seed), *shape).requires_grad_(grad)


@ALL_FORMS
def test_orthonormal_keys_give_back_what_was_written(form) -> None:
    """B_t = e_t stores x̂_t in column t; C = e_s reads x̂_s back, exactly, once it has been written."""
    L = 4
    values, keys = drawn(L, 3), torch.eye(L, dtype=torch.float64)
    for s in range(L):
        read = form(values, keys, keys[s].expand(L, L))
        assert torch.equal(read[:s], torch.zeros(s, 3, dtype=torch.float64))
        assert torch.equal(read[s:], values[s].expand(L - s, 3))


@ALL_FORMS
def test_one_token_and_one_state_entry(form) -> None:
    x_hat, B, C = torch.tensor([[2.0, 3.0]]), torch.tensor([[5.0]]), torch.tensor([[7.0]])
    assert form(x_hat, B, C).tolist() == [[70.0, 105.0]]


def test_the_state_is_the_sum_of_outer_products() -> None:
    x_hat, B = drawn(5, 3), drawn(5, 2, seed=1)
    h = hidden_states(x_hat, B)
    for t in range(5):
        assert_near(h[t], x_hat[: t + 1].T @ B[: t + 1])


def test_positions_pick_rows_in_the_order_asked() -> None:
    values = torch.arange(2 * 3 * 2).reshape(2, 3, 2)
    picked = at_positions(values, torch.tensor([[2, 0], [1, 1]]))
    assert picked.tolist() == [[[4, 5], [0, 1]], [[8, 9], [8, 9]]]


def test_a_chunk_of_nothing_is_refused_with_a_cure() -> None:
    with pytest.raises(ValueError, match="chunk >= 1"):
        linear_scan(drawn(3, 2), drawn(3, 2), drawn(3, 2), chunk=0)
