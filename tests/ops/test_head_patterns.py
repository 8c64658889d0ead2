"""What the heads share (Tab. 5), and how channels get to them and back (Alg. 4)."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from recallscope.ops import (
    aggregate,
    contract,
    deal,
    dealing_weight,
    head_counts,
    multi_head_scan,
    scan_loop,
    split,
    stacking_weight,
)


def draw(*shape: int, seed: int = 0, grad: bool = False) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=g, dtype=torch.float64).requires_grad_(grad)


@pytest.mark.parametrize(
    ("pattern", "x", "B", "C"), [("MHA", 4, 4, 4), ("MQA", 1, 1, 4), ("MKA", 1, 4, 1), ("MVA", 4, 1, 1)]
)
def test_each_pattern_shares_what_the_table_says(pattern, x, B, C) -> None:
    assert head_counts(pattern, 4) == (x, B, C)


@pytest.mark.parametrize("pattern", ["MHA", "MQA", "MKA", "MVA"])
def test_with_one_head_all_patterns_are_one(pattern) -> None:
    assert head_counts(pattern, 1) == (1, 1, 1)


def test_split_deals_neighbouring_channels_to_a_head() -> None:
    x_hat = torch.arange(6.0)[None]
    assert split(x_hat, 3).tolist() == [[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]]


@pytest.mark.parametrize(("M", "P"), [(1, 1), (1, 4), (3, 1), (2, 3), (4, 2)])
def test_the_trivial_weights_split_and_stack(M, P) -> None:
    x_hat = draw(2, 5, M * P).float()
    heads = deal(x_hat, dealing_weight(M, P))
    assert torch.equal(heads, split(x_hat, M))
    assert torch.equal(aggregate(heads, stacking_weight(M, P)), x_hat)


def test_contraction_weighs_every_channel_of_every_head() -> None:
    """x̂_shared = Σ_h W_x^h ⊙ x̂^h, written out."""
    x_heads, W_x = draw(2, 5, 3, 4), draw(4, 3, seed=1)
    expected = sum(W_x[:, h] * x_heads[..., h, :] for h in range(3))
    torch.testing.assert_close(contract(x_heads, W_x)[..., 0, :], expected)


def test_aggregation_sums_what_each_head_maps_back() -> None:
    """ŷ = Σ_h W_y^h ŷ^h, written out."""
    y_heads, W_y = draw(5, 3, 4), draw(7, 4, 3, seed=1)
    expected = sum(y_heads[:, h] @ W_y[:, :, h].T for h in range(3))
    torch.testing.assert_close(aggregate(y_heads, W_y), expected)


def test_shared_keys_and_queries_make_the_heads_one_wide_head() -> None:
    """MVA: the stacked heads are the single-head scan of all channels (Lem H.2)."""
    x_hat, B, C = draw(2, 6, 8), draw(2, 6, 3, seed=1), draw(2, 6, 3, seed=2)
    y_heads = multi_head_scan(split(x_hat, 4), B[..., None, :], C[..., None, :])
    torch.testing.assert_close(y_heads.flatten(-2), scan_loop(x_hat, B, C))


@pytest.mark.parametrize("pattern", ["MHA", "MQA", "MKA", "MVA"])
def test_gradients_are_derivatives(pattern) -> None:
    heads = head_counts(pattern, 2)
    inputs = (draw(1, 4, heads.x, 2, grad=True), draw(1, 4, heads.B, 2, seed=1, grad=True))
    assert gradcheck(multi_head_scan, (*inputs, draw(1, 4, heads.C, 2, seed=2, grad=True)))
