"""The chunked scan of Mamba-2 against one token after another: values and every gradient, whatever the heads share."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import softplus

from closeness import assert_near, assert_twins, draw
from recallscope.ops.head_patterns import head_counts
from recallscope.ops.selective_scan import selective_scan_loop
from recallscope.ops.ssd import segment_sums, ssd_loop, ssd_scan
from recallscope.specs import HeadPattern

PATTERNS = ("MHA", "MQA", "MKA", "MVA")
shapes = st.tuples(*(st.integers(1, n) for n in (3, 12, 4, 3, 4)))


def draw_inputs(
    shape: tuple[int, int, int, int, int], pattern: HeadPattern, seed: int, delta_shift: float = 0.0
) -> dict[str, Tensor]:
    batch, L, M, P, N = shape
    g, heads = torch.Generator().manual_seed(seed), head_counts(pattern, M)
    return {
        "x_heads": draw(g, batch, L, heads.x, P),
        "delta": softplus(draw(g, batch, L, M) + delta_shift),
        "A": -draw(g, M).exp(),
        "B": draw(g, batch, L, heads.B, N),
        "C": draw(g, batch, L, heads.C, N),
    }


@given(shape=shapes, pattern=st.sampled_from(PATTERNS), chunk=st.integers(1, 14), seed=st.integers(0, 2**31))
def test_chunks_are_the_loop(
    shape: tuple[int, int, int, int, int], pattern: HeadPattern, chunk: int, seed: int
) -> None:
    """Chunks of one token, chunks longer than the sequence, last chunks that are short."""
    assert_twins(partial(ssd_scan, chunk=chunk), ssd_loop, draw_inputs(shape, pattern, seed))


@pytest.mark.parametrize("delta_shift", [-12.0, 5.0, 80.0])
def test_they_hold_where_states_are_kept_and_where_they_are_wiped(delta_shift: float) -> None:
    assert_twins(partial(ssd_scan, chunk=8), ssd_loop, draw_inputs((2, 30, 3, 2, 3), "MVA", 1, delta_shift))


def test_they_hold_for_long_sequences() -> None:
    assert_twins(ssd_scan, ssd_loop, draw_inputs((1, 1000, 2, 2, 3), "MVA", 2, -3.0))


@given(shape=shapes, seed=st.integers(0, 2**31))
def test_it_is_mamba_1s_scan_where_channels_of_a_head_decay_alike(
    shape: tuple[int, int, int, int, int], seed: int
) -> None:
    """MVA, channel by channel: Δ and A of the head for each of its P channels and N entries (Eq. 2-3)."""
    inputs = draw_inputs(shape, "MVA", seed)
    P, N = shape[3:]
    y = selective_scan_loop(
        inputs["x_heads"].flatten(-2),
        inputs["delta"].repeat_interleave(P, dim=-1),
        inputs["A"].repeat_interleave(P)[:, None].expand(-1, N),
        inputs["B"][..., 0, :],
        inputs["C"][..., 0, :],
    )
    assert_near(ssd_scan(**inputs).flatten(-2), y)


def test_a_chunk_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match=r"chunk=0.*Use chunk >= 1"):
        ssd_scan(**draw_inputs((1, 3, 1, 1, 1), "MHA", 0), chunk=0)


def test_segments_are_summed_on_their_own() -> None:
    """After a large rate a difference of cumulative sums would have no digits left; each sum here has all of them."""
    rates = torch.tensor([[-1e8, -0.3, -0.2, -0.1]])
    sums = segment_sums(rates)[0]
    assert_near(sums[3], torch.tensor([-0.6, -0.3, -0.1, 0.0]))
    assert (sums.triu(1)[sums.triu(1) != 0] == -torch.inf).all()
