"""Looking up, convolving and activating in one C loop, against the three steps in torch: values and gradients."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from twins import draw

from recallscope.ops.conv import (
    Activation,
    ConvInputs,
    gathered_conv,
    gathered_conv_backward,
    gathered_conv_plain,
)

channels = st.one_of(st.integers(1, 8), st.sampled_from([31, 32, 33, 64, 65, 130]))
shapes = st.tuples(st.integers(1, 4), st.integers(1, 9), channels, st.integers(1, 5), st.integers(1, 6))


def draw_inputs(shape: tuple[int, int, int, int, int], seed: int, activation: Activation, *, bias: bool) -> ConvInputs:
    batch, L, D_in, D_conv, rows = shape
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, rows, (batch, L), generator=g)
    return ConvInputs(ids, draw(g, rows, D_in), draw(g, D_in, D_conv), draw(g, D_in) if bias else None, activation)


@given(shape=shapes, seed=st.integers(0, 2**31), activation=st.sampled_from(["silu", "none"]), bias=st.booleans())
def test_the_kernel_is_the_three_steps(
    shape: tuple[int, int, int, int, int], seed: int, activation: Activation, bias: bool
) -> None:
    """Kernels wider than the sequence, one tap, and tokens that come many times included."""
    conv = draw_inputs(shape, seed, activation, bias=bias)
    leaves = [v.clone().requires_grad_() for v in (conv.table, conv.W_conv, conv.bias) if v is not None]
    expected = gathered_conv_plain(ConvInputs(conv.ids, *leaves[:2], leaves[2] if bias else None, activation))
    torch.testing.assert_close(gathered_conv(conv), expected)
    weight = draw(torch.Generator().manual_seed(seed), *expected.shape)
    ours = [grad for grad in gathered_conv_backward(conv, weight) if grad is not None]
    for mine, theirs in zip(ours, torch.autograd.grad(expected, leaves, weight), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("bad", [-1, 3])
def test_a_token_outside_the_table_is_refused(bad: int) -> None:
    conv = draw_inputs((1, 4, 3, 2, 3), 0, "silu", bias=True)
    conv.ids[0, 2] = bad
    with pytest.raises(IndexError, match="outside"):
        gathered_conv(conv)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    conv = draw_inputs((16, 64, 300, 4, 50), 1, "silu", bias=True)
    weight = draw(torch.Generator().manual_seed(2), 16, 64, 300)
    found = []
    for count in (1, 3):
        torch.set_num_threads(count)
        found.append((gathered_conv(conv), *gathered_conv_backward(conv, weight)))
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
