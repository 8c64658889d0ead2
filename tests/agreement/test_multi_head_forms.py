"""All heads at once against one head after another (Alg. 4), for every pattern of sharing (Tab. 5)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from twins import assert_twins, draw

from recallscope.ops import (
    at_positions,
    head_counts,
    multi_head_read_at,
    multi_head_scan,
    multi_head_scan_loop,
    multi_head_states,
)
from recallscope.ops.linear_scan import CHUNK
from recallscope.specs import HeadPattern

PATTERNS: tuple[HeadPattern, ...] = ("MHA", "MQA", "MKA", "MVA")
shapes = st.tuples(*(st.integers(1, n) for n in (3, 8, 4, 3, 4)))


def draw_inputs(pattern: HeadPattern, batch: int, L: int, M: int, P: int, N: int, seed: int) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    heads = head_counts(pattern, M)
    return {
        "x_heads": draw(g, batch, L, heads.x, P),
        "B": draw(g, batch, L, heads.B, N),
        "C": draw(g, batch, L, heads.C, N),
    }


@pytest.mark.parametrize("pattern", PATTERNS)
@given(shape=shapes, seed=st.integers(0, 2**31))
def test_all_heads_at_once_are_one_after_another(
    pattern: HeadPattern, shape: tuple[int, int, int, int, int], seed: int
) -> None:
    assert_twins(multi_head_scan, multi_head_scan_loop, draw_inputs(pattern, *shape, seed))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_long_sequences_go_in_chunks(pattern: HeadPattern) -> None:
    assert_twins(multi_head_scan, multi_head_scan_loop, draw_inputs(pattern, 1, CHUNK + 3, 2, 2, 3, seed=1))


@pytest.mark.parametrize("pattern", PATTERNS)
@given(shape=shapes, num_queries=st.integers(1, 5), seed=st.integers(0, 2**31))
def test_reading_at_the_queries_is_the_loop_gathered(
    pattern: HeadPattern, shape: tuple[int, int, int, int, int], num_queries: int, seed: int
) -> None:
    batch, L, *_ = shape
    positions = torch.randint(0, L, (batch, num_queries), generator=torch.Generator().manual_seed(seed))

    def pick(values: Tensor) -> Tensor:
        return at_positions(values.flatten(-2), positions).unflatten(-1, values.shape[-2:])

    assert_twins(
        lambda x_heads, B, C: multi_head_read_at(x_heads, B, pick(C), positions),
        lambda x_heads, B, C: pick(multi_head_scan_loop(x_heads, B, C)),
        draw_inputs(pattern, *shape, seed),
    )


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_is_read_is_in_the_states(pattern: HeadPattern) -> None:
    inputs = draw_inputs(pattern, 2, 6, 3, 2, 4, seed=3)
    h = multi_head_states(inputs["x_heads"], inputs["B"])
    read = (h * inputs["C"][..., None, :]).sum(dim=-1)
    torch.testing.assert_close(read, multi_head_scan_loop(**inputs))
