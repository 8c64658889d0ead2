"""The simplified SSM as a memory: what it stores, when it can be read, and what it refuses."""

from functools import partial

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from recallscope.ops import (
    at_positions,
    hidden_states,
    linear_scan,
    read_at,
    scan_loop,
)

FORMS = pytest.mark.parametrize("form", [scan_loop, linear_scan, partial(linear_scan, chunk=2)])


def draw(*shape: int, seed: int = 0, grad: bool = False) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64).requires_grad_(grad)


@FORMS
def test_orthonormal_keys_give_back_what_was_written(form) -> None:
    """B_t = e_t stores x̂_t in column t; C = e_s reads x̂_s back, exactly, once it has been written."""
    L = 4
    values, keys = draw(L, 3), torch.eye(L, dtype=torch.float64)
    for s in range(L):
        read = form(values, keys, keys[s].expand(L, L))
        assert torch.equal(read[:s], torch.zeros(s, 3, dtype=torch.float64))
        assert torch.equal(read[s:], values[s].expand(L - s, 3))


@FORMS
def test_one_token_and_one_state_entry(form) -> None:
    x_hat, B, C = torch.tensor([[2.0, 3.0]]), torch.tensor([[5.0]]), torch.tensor([[7.0]])
    assert form(x_hat, B, C).tolist() == [[70.0, 105.0]]


def test_the_state_is_the_sum_of_outer_products() -> None:
    x_hat, B = draw(5, 3), draw(5, 2, seed=1)
    h = hidden_states(x_hat, B)
    for t in range(5):
        torch.testing.assert_close(h[t], x_hat[: t + 1].T @ B[: t + 1])


@pytest.mark.parametrize("form", [linear_scan, partial(linear_scan, chunk=2)])
def test_gradients_are_derivatives(form) -> None:
    assert gradcheck(
        form, (draw(2, 5, 3, grad=True), draw(2, 5, 2, seed=1, grad=True), draw(2, 5, 2, seed=2, grad=True))
    )


def test_gradients_of_reading_are_derivatives() -> None:
    positions = torch.tensor([[0, 4], [2, 2]])
    inputs = (draw(2, 5, 3, grad=True), draw(2, 5, 2, seed=1, grad=True), draw(2, 2, 2, seed=2, grad=True))
    assert gradcheck(lambda x, B, C_q: read_at(x, B, C_q, positions), inputs)


def test_a_query_reads_no_token_after_its_position() -> None:
    x_hat, B, C = draw(1, 6, 3), draw(1, 6, 2, seed=1), draw(1, 1, 2, seed=2)
    position = torch.tensor([[3]])
    later = x_hat.clone()
    later[:, 4:] += 1
    assert torch.equal(read_at(x_hat, B, C, position), read_at(later, B, C, position))


def test_positions_pick_rows_in_the_order_asked() -> None:
    values = torch.arange(2 * 3 * 2).reshape(2, 3, 2)
    picked = at_positions(values, torch.tensor([[2, 0], [1, 1]]))
    assert picked.tolist() == [[[4, 5], [0, 1]], [[8, 9], [8, 9]]]


def test_a_chunk_of_nothing_is_refused_with_a_cure() -> None:
    with pytest.raises(ValueError, match="chunk >= 1"):
        linear_scan(draw(3, 2), draw(3, 2), draw(3, 2), chunk=0)
