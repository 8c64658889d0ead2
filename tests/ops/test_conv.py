"""Which tap acts on which token, and that none looks ahead."""

import pytest
import torch
from torch.autograd import gradcheck

from recallscope.ops import causal_conv, causal_conv_loop

FORMS = pytest.mark.parametrize("form", [causal_conv, causal_conv_loop])


@FORMS
def test_the_last_tap_acts_on_the_current_token_and_the_one_before_on_the_last(form) -> None:
    """W_conv = (W⁰ | W¹), x̂_t = W⁰ ⊙ x_{t-1} + W¹ ⊙ x_t, and x_{-1} = 0."""
    x_in = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    W_conv = torch.tensor([[5.0, 7.0], [0.0, 1.0]])
    assert form(x_in, W_conv).tolist() == [[7.0, 10.0], [5.0 + 14.0, 20.0], [10.0 + 21.0, 30.0]]


@FORMS
def test_copy_and_shift(form) -> None:
    """The kernel of Thm 3.1: first half the token before, second half the token itself."""
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    W_conv = torch.tensor([[1.0, 0.0]] * 3 + [[0.0, 1.0]] * 3)
    x_hat = form(torch.cat([x, x], dim=-1), W_conv)
    before = torch.cat([torch.zeros(1, 3), x[:-1]])
    assert torch.equal(x_hat, torch.cat([before, x], dim=-1))


@FORMS
def test_one_tap_is_a_scale_per_channel(form) -> None:
    x_in = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0))
    W_conv, bias = torch.tensor([[2.0], [3.0], [4.0]]), torch.tensor([1.0, 0.0, -1.0])
    torch.testing.assert_close(form(x_in, W_conv, bias), x_in * W_conv[:, 0] + bias)


@FORMS
def test_no_token_sees_a_later_one(form) -> None:
    g = torch.Generator().manual_seed(0)
    x_in, W_conv = torch.randn(7, 2, generator=g), torch.randn(2, 4, generator=g)
    changed = x_in.clone()
    changed[4:] += 1
    assert torch.equal(form(x_in, W_conv)[:4], form(changed, W_conv)[:4])


def test_gradients_are_derivatives() -> None:
    g = torch.Generator().manual_seed(0)
    inputs = [torch.randn(*s, generator=g, dtype=torch.float64, requires_grad=True) for s in ((2, 4, 3), (3, 2), (3,))]
    assert gradcheck(causal_conv, inputs)


def test_a_wrong_axis_fails_by_name() -> None:
    """Shapes are types: the checker is on under pytest."""
    with pytest.raises(Exception, match="D_in"):
        causal_conv(torch.zeros(5, 3), torch.zeros(4, 2))
