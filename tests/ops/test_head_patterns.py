"""What the heads share (Tab. 5), how channels get to them and back, and all heads at once = one by one (Alg. 4)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from closeness import assert_near, assert_twins, draw
from recallscope.ops.head_patterns import (
    aggregate,
    contract,
    deal,
    dealing_weight,
    head_counts,
    multi_head_read_at,
    multi_head_scan,
    multi_head_scan_loop,
    multi_head_states,
    split,
    stacking_weight,
)
from recallscope.ops.linear_scan import CHUNK, at_positions, scan_loop
from recallscope.specs import HeadPattern

PATTERNS = pytest.mark.parametrize("pattern", ["MHA", "MQA", "MKA", "MVA"])
shapes = st.tuples(*(st.integers(1, n) for n in (3, 8, 4, 3, 4)))


def drawn(*shape: int, seed: int = 0, grad: bool = False) -> Tensor:
    return draw(torch.Generator().manual_seed(seed), *shape).requires_grad_(grad)


def draw_inputs(pattern: HeadPattern, batch: int, L: int, M: int, P: int, N: int, seed: int) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    heads = head_counts(pattern, M)
    return {
        "x_heads": draw(g, batch, L, heads.x, P),
        "B": draw(g, batch, L, heads.B, N),
        "C": draw(g, batch, L, heads.C, N),
    }


@PATTERNS
@given(shape=shapes, seed=st.integers(0, 2**31))
def test_all_heads_at_once_are_one_after_another(
    pattern: HeadPattern, shape: tuple[int, int, int, int, int], seed: int
) -> None:
    assert_twins(multi_head_scan, multi_head_scan_loop, draw_inputs(pattern, *shape, seed))


@PATTERNS
def test_long_sequences_go_in_chunks(pattern: HeadPattern) -> None:
    assert_twins(multi_head_scan, multi_head_scan_loop, draw_inputs(pattern, 1, CHUNK + 3, 2, 2, 3, seed=1))


@PATTERNS
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


@PATTERNS
def test_what_is_read_is_in_the_states(pattern: HeadPattern) -> None:
    inputs = draw_inputs(pattern, 2, 6, 3, 2, 4, seed=3)
    h = multi_head_states(inputs["x_heads"], inputs["B"])
    read = (h * inputs["C"][..., None, :]).sum(dim=-1)
    assert_near(read, multi_head_scan_loop(**inputs))


@pytest.mark.parametrize(
    ("pattern", "x", "B", "C"), [("MHA", 4, 4, 4), ("MQA", 1, 1, 4), ("MKA", 1, 4, 1), ("MVA", 4, 1, 1)]
)
def test_each_pattern_shares_what_the_table_says(pattern, x, B, C) -> None:
    assert head_counts(pattern, 4) == (x, B, C)
    assert head_counts(pattern, 1) == (1, 1, 1)


def test_split_deals_neighbouring_channels_to_a_head() -> None:
    x_hat = torch.arange(6.0)[None]
    assert split(x_hat, 3).tolist() == [[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]]


@pytest.mark.parametrize(("M", "P"), [(1, 1), (1, 4), (3, 1), (2, 3), (4, 2)])
def test_the_trivial_weights_split_and_stack(M, P) -> None:
    x_hat = drawn(2, 5, M * P).float()
    heads = deal(x_hat, dealing_weight(M, P))
    assert torch.equal(heads, split(x_hat, M))
    assert torch.equal(aggregate(heads, stacking_weight(M, P)), x_hat)


def test_contraction_weighs_every_channel_of_every_head() -> None:
    """x̂_shared = Σ_h W_x^h ⊙ x̂^h, written out."""
    x_heads, W_x = drawn(2, 5, 3, 4), drawn(4, 3, seed=1)
    expected = sum(W_x[:, h] * x_heads[..., h, :] for h in range(3))
    assert_near(contract(x_heads, W_x)[..., 0, :], expected)


def test_aggregation_sums_what_each_head_maps_back() -> None:
    """ŷ = Σ_h W_y^h ŷ^h, written out."""
    y_heads, W_y = drawn(5, 3, 4), drawn(7, 4, 3, seed=1)
    expected = sum(y_heads[:, h] @ W_y[:, :, h].T for h in range(3))
    assert_near(aggregate(y_heads, W_y), expected)


def test_shared_keys_and_queries_make_the_heads_one_wide_head() -> None:
    """MVA: the stacked heads are the single-head scan of all channels (Lem H.2)."""
    x_hat, B, C = drawn(2, 6, 8), drawn(2, 6, 3, seed=1), drawn(2, 6, 3, seed=2)
    y_heads = multi_head_scan(split(x_hat, 4), B[..., None, :], C[..., None, :])
    assert_near(y_heads.flatten(-2), scan_loop(x_hat, B, C))
