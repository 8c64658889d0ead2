"""Softmax attention against one token after another: values and every gradient."""

from functools import partial

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from closeness import assert_twins, draw
from recallscope.ops.attention import softmax_attention, softmax_attention_loop

sizes = st.tuples(*(st.integers(1, n) for n in (3, 12, 3, 5, 4)))
seeds = st.integers(0, 2**31)


def draw_inputs(size: tuple[int, ...], seed: int) -> dict[str, Tensor]:
    batch, L, M, N, P = size
    g = torch.Generator().manual_seed(seed)
    return {"q": draw(g, batch, L, M, N), "k": draw(g, batch, L, M, N), "v": draw(g, batch, L, M, P)}


@settings(max_examples=25)
@given(size=sizes, seed=seeds, window=st.none() | st.integers(1, 13))
def test_attention_is_the_loop(size: tuple[int, ...], seed: int, window: int | None) -> None:
    fast, plain = (partial(form, window=window) for form in (softmax_attention, softmax_attention_loop))
    assert_twins(fast, plain, draw_inputs(size, seed))


@settings(max_examples=15)
@given(size=sizes, Q=st.integers(1, 4), seed=seeds)
def test_it_reads_at_positions(size: tuple[int, ...], Q: int, seed: int) -> None:
    """In any order, some of them twice: each query by itself, after the tokens up to its own."""
    (batch, L, M, N, _), g = size, torch.Generator().manual_seed(seed)
    positions = torch.randint(0, L, (batch, Q), generator=g)

    def one_by_one(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        def read(row: int, query: int) -> Tensor:
            seen = slice(row, row + 1), slice(0, int(positions[row, query]) + 1)
            return softmax_attention_loop(q[row, query].expand(*k[seen].shape), k[seen], v[seen])[0, -1]

        return torch.stack([torch.stack([read(row, query) for query in range(Q)]) for row in range(batch)])

    inputs = draw_inputs(size, seed) | {"q": draw(g, batch, Q, M, N)}
    assert_twins(lambda **given: softmax_attention(**given, positions=positions), one_by_one, inputs)
