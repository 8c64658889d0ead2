"""Causal convolution: which tap acts on which token; shifted products = the loop = conv1d; and look-up, convolution and
activation in one C loop = the three steps in torch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import conv1d

from closeness import assert_agree, assert_threads_change_no_bit, assert_twins, draw, output_and_gradients, weighting
from recallscope.ops.conv import (
    Activation,
    ConvInputs,
    causal_conv,
    causal_conv_loop,
    gathered_conv,
    gathered_conv_backward,
    gathered_conv_plain,
)

FORMS = pytest.mark.parametrize("form", [causal_conv, causal_conv_loop])
channels = st.one_of(st.integers(1, 8), st.sampled_from([31, 32, 33, 64, 65, 130]))
gathered_shapes = st.tuples(st.integers(1, 4), st.integers(1, 9), channels, st.integers(1, 5), st.integers(1, 6))


def torch_conv(x_in: Tensor, W_conv: Tensor, bias: Tensor | None = None) -> Tensor:
    D_in, D_conv = W_conv.shape
    L = x_in.shape[-2]
    out = conv1d(x_in.mT, W_conv[:, None], bias, padding=D_conv - 1, groups=D_in)
    return out[..., :L].mT


shapes = st.fixed_dictionaries(
    {"batch": st.integers(1, 3), "L": st.integers(1, 9), "D_in": st.integers(1, 5), "D_conv": st.integers(1, 6)}
)


@given(shape=shapes, with_bias=st.booleans(), seed=st.integers(0, 2**31))
def test_shifted_products_are_the_loop_and_conv1d(shape: dict[str, int], with_bias: bool, seed: int) -> None:
    """Also where the kernel is longer than the sequence."""
    g = torch.Generator().manual_seed(seed)
    inputs = {
        "x_in": draw(g, shape["batch"], shape["L"], shape["D_in"]),
        "W_conv": draw(g, shape["D_in"], shape["D_conv"]),
    }
    if with_bias:
        inputs["bias"] = draw(g, shape["D_in"])
    assert_twins(causal_conv, causal_conv_loop, inputs)
    assert_twins(causal_conv, torch_conv, inputs)


@FORMS
def test_the_last_tap_acts_on_the_current_token_and_the_one_before_on_the_last(form) -> None:
    """W_conv = (W⁰ | W¹), x̂_t = W⁰ ⊙ x_{t-1} + W¹ ⊙ x_t, and x_{-1} = 0."""
    x_in = torch.tensor([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    W_conv = torch.tensor([[5.0, 7.0], [0.0, 1.0]])
    assert form(x_in, W_conv).tolist() == [[7.0, 10.0], [5.0 + 14.0, 20.0], [10.0 + 21.0, 30.0]]


def test_a_wrong_axis_fails_by_name() -> None:
    """Shapes are types: the checker is on under pytest."""
    with pytest.raises(Exception, match="D_in"):
        causal_conv(torch.zeros(5, 3), torch.zeros(4, 2))


def draw_inputs(shape: tuple[int, int, int, int, int], seed: int, activation: Activation, *, bias: bool) -> ConvInputs:
    batch, L, D_in, D_conv, rows = shape
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, rows, (batch, L), generator=g)
    return ConvInputs(ids, draw(g, rows, D_in), draw(g, D_in, D_conv), draw(g, D_in) if bias else None, activation)


@given(
    shape=gathered_shapes, seed=st.integers(0, 2**31), activation=st.sampled_from(["silu", "none"]), bias=st.booleans()
)
def test_the_kernel_is_the_three_steps(
    shape: tuple[int, int, int, int, int], seed: int, activation: Activation, bias: bool
) -> None:
    """Kernels wider than the sequence, one tap, and tokens that come many times included."""
    conv = draw_inputs(shape, seed, activation, bias=bias)
    given_to = {"table": conv.table, "W_conv": conv.W_conv} | ({} if conv.bias is None else {"bias": conv.bias})
    leaves = {name: x.clone().requires_grad_() for name, x in given_to.items()}

    def three_steps() -> dict[str, Tensor]:
        return output_and_gradients(gathered_conv_plain(conv._replace(**leaves)), leaves)

    out = gathered_conv(conv)
    grads = gathered_conv_backward(conv, weighting(out))._asdict()
    assert_agree({"output": out, **grads}, three_steps, leaves.values())


@pytest.mark.parametrize("bad", [-1, 3])
def test_a_token_outside_the_table_is_refused(bad: int) -> None:
    conv = draw_inputs((1, 4, 3, 2, 3), 0, "silu", bias=True)
    conv.ids[0, 2] = bad
    with pytest.raises(IndexError, match="outside"):
        gathered_conv(conv)


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    conv = draw_inputs((16, 64, 300, 4, 50), 1, "silu", bias=True)
    weight = draw(torch.Generator().manual_seed(2), 16, 64, 300)
    assert_threads_change_no_bit(lambda: (gathered_conv(conv), *gathered_conv_backward(conv, weight)), 3)
