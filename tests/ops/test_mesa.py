"""Least squares as a memory against one token after another: values and every gradient."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from closeness import assert_twins, draw
from recallscope.ops.linear_scan import at_positions
from recallscope.ops.mesa import mesa_loop, mesa_scan

FORMS = pytest.mark.parametrize("form", ["compiled", "torch"])
sizes = st.tuples(*(st.integers(1, n) for n in (3, 12, 3, 5, 4)))
seeds = st.integers(0, 2**31)


def draw_inputs(size: tuple[int, ...], seed: int, *, fades: bool = False) -> dict[str, Tensor]:
    batch, L, M, N, P = size
    g = torch.Generator().manual_seed(seed)
    q, keys, v = (draw(g, batch, L, M, n) for n in (N, N, P))
    k, ridge = torch.sigmoid(draw(g, batch, L, M, 1)) * keys, 0.3 + draw(g, M, N).square()
    inputs = {"q": q, "k": k, "v": v, "keys": keys, "ridge": ridge}
    return inputs | ({"w": torch.sigmoid(draw(g, batch, L, M, 1) + 2)} if fades else {})


def loop_at(positions: Tensor, q: Tensor, **inputs: Tensor) -> Tensor:
    """One query after the other: the same q at every token, read at its own."""
    L, columns = inputs["k"].shape[1], []
    for one in range(positions.shape[1]):
        o = mesa_loop(q=q[:, one : one + 1].expand(-1, L, -1, -1), **inputs)
        columns.append(at_positions(o.flatten(2), positions[:, one : one + 1]).unflatten(-1, o.shape[2:]))
    return torch.cat(columns, dim=1)


@FORMS
@settings(max_examples=25)
@given(size=sizes, fades=st.booleans(), seed=seeds)
def test_least_squares_is_the_loop(form: str, size: tuple[int, ...], fades: bool, seed: int) -> None:
    assert_twins(partial(mesa_scan, form=form), mesa_loop, draw_inputs(size, seed, fades=fades))


@settings(max_examples=15)
@given(size=sizes, Q=st.integers(1, 4), seed=seeds)
def test_it_reads_at_positions(size: tuple[int, ...], Q: int, seed: int) -> None:
    """In any order, some of them twice."""
    (batch, L, M, N, _), g = size, torch.Generator().manual_seed(seed)
    asked = {"q": draw(g, batch, Q, M, N), "positions": torch.randint(0, L, (batch, Q), generator=g)}
    assert_twins(mesa_scan, loop_at, draw_inputs(size, seed) | asked)


def test_least_squares_recalls_as_many_pairs_as_there_are_dimensions() -> None:
    """N keys in general position, ridge near 0: every value comes back, whatever the angles between the keys.

    Up to the ridge, 1e-12 times the condition of the keys' Gram matrix, which is below 1e5 here.
    """
    g = torch.Generator().manual_seed(0)
    k, v = draw(g, 1, 5, 1, 5), draw(g, 1, 5, 1, 3)
    o = mesa_scan(k, k, v, k, torch.full((1, 5), 1e-12, dtype=k.dtype), positions=torch.full((1, 5), 4))
    assert torch.linalg.cond(k[0, :, 0]) ** 2 < 1e5
    assert (o - v).abs().max() < 1e-6 * v.abs().max()
