"""Loop = attention = chunks (Eq. 4), and reading at the queries is the loop, gathered."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from twins import assert_twins, draw

from recallscope.ops import (
    at_positions,
    linear_scan,
    read_at,
    scan_loop,
)
from recallscope.ops.linear_scan import CHUNK

FORMS = {
    "attention": linear_scan,
    "chunks of 1": partial(linear_scan, chunk=1),
    "chunks of 4": partial(linear_scan, chunk=4),
}
shapes = st.tuples(st.integers(1, 3), st.integers(1, 10), st.integers(1, 5), st.integers(1, 5))


def draw_inputs(batch: int, L: int, D_in: int, N: int, seed: int) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {"x_hat": draw(g, batch, L, D_in), "B": draw(g, batch, L, N), "C": draw(g, batch, L, N)}


@pytest.mark.parametrize("form", FORMS)
@given(shape=shapes, seed=st.integers(0, 2**31))
def test_every_form_is_the_loop(form: str, shape: tuple[int, int, int, int], seed: int) -> None:
    assert_twins(FORMS[form], scan_loop, draw_inputs(*shape, seed))


@pytest.mark.parametrize("chunk", [1, 2, 3, 4, 5, 11, 12, 13, 100])
def test_it_does_not_matter_where_a_chunk_ends(chunk: int) -> None:
    """Chunks that divide L = 12, that leave one token over, that are longer than the sequence."""
    assert_twins(partial(linear_scan, chunk=chunk), scan_loop, draw_inputs(2, 12, 3, 2, seed=chunk))


@pytest.mark.parametrize("L", [CHUNK - 1, CHUNK, CHUNK + 1])
def test_short_and_long_sequences_meet_where_the_form_changes(L: int) -> None:
    assert_twins(linear_scan, scan_loop, draw_inputs(1, L, 2, 3, seed=L))


def test_sequences_need_no_batch_axis_and_may_have_two() -> None:
    inputs = draw_inputs(6, 5, 3, 2, seed=0)
    together = linear_scan(**inputs)
    alone = linear_scan(**{name: v[0] for name, v in inputs.items()})
    folded = linear_scan(**{name: v.unflatten(0, (2, 3)) for name, v in inputs.items()})
    torch.testing.assert_close(alone, together[0])
    torch.testing.assert_close(folded.flatten(0, 1), together)


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
