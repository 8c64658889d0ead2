"""The shifted products of `causal_conv` against the loop over tokens and taps, and against torch's conv1d."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import conv1d
from twins import assert_twins, draw

from recallscope.ops import causal_conv, causal_conv_loop


def torch_conv(x_in: Tensor, W_conv: Tensor, bias: Tensor | None = None) -> Tensor:
    D_in, D_conv = W_conv.shape
    L = x_in.shape[-2]
    out = conv1d(x_in.mT, W_conv[:, None], bias, padding=D_conv - 1, groups=D_in)
    return out[..., :L].mT


shapes = st.fixed_dictionaries(
    {
        "batch": st.integers(1, 3),
        "L": st.integers(1, 9),
        "D_in": st.integers(1, 5),
        "D_conv": st.integers(1, 6),
    }
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
