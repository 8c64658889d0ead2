"""The delta scan by C kernel and by chunks against one token after another: values and every gradient."""

from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from closeness import assert_threads_change_no_bit, assert_twins, draw, output_and_gradients
from recallscope.ops.delta_scan import delta_scan, delta_scan_loop, delta_scan_torch
from recallscope.ops.delta_scan_compiled import delta_scan_compiled

sizes = st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 3), st.integers(1, 20))
widths = st.one_of(st.integers(1, 8), st.sampled_from([15, 16, 17, 48, 63, 64, 65, 130]))
seeds = st.integers(0, 2**31)
decays = st.sampled_from(["none", "head", "channel"])
FORMS = pytest.mark.parametrize("form", ["compiled", "torch"])


def draw_inputs(
    size: tuple[int, int, int, int], P: int, decay: str, delta: bool, seed: int, fade: float = 2.0
) -> dict[str, Tensor]:
    """Keys of about unit length, so that a hundred delta steps neither vanish nor explode."""
    batch, L, M, N = size
    g = torch.Generator().manual_seed(seed)
    q, k, a, b = (draw(g, batch, L, M, N) / N**0.5 for _ in range(4))
    inputs = {"q": q, "k": k, "v": draw(g, batch, L, M, P)}
    if decay != "none":
        inputs["w"] = torch.sigmoid(draw(g, batch, L, M, N if decay == "channel" else 1) + fade)
    return inputs | ({"a": a, "b": b} if delta else {})


@FORMS
@settings(max_examples=25)
@given(size=sizes, P=widths, decay=decays, delta=st.booleans(), seed=seeds)
def test_they_are_the_loop(form: str, size: tuple[int, int, int, int], P: int, decay: str, delta: bool, seed: int):
    assert_twins(partial(delta_scan, form=form), delta_scan_loop, draw_inputs(size, P, decay, delta, seed))


@FORMS
@settings(max_examples=25)
@given(size=sizes, P=st.integers(1, 5), decay=decays, delta=st.booleans(), Q=st.integers(1, 6), seed=seeds)
def test_reading_at_positions_is_the_loop_there(
    form: str, size: tuple[int, int, int, int], P: int, decay: str, delta: bool, Q: int, seed: int
):
    """Positions in any order, some of them twice."""
    (batch, L, M, N), g = size, torch.Generator().manual_seed(seed)
    inputs = draw_inputs(size, P, decay, delta, seed)
    asked = {"q": draw(g, batch, Q, M, N), "positions": torch.randint(0, L, (batch, Q), generator=g)}
    assert_twins(partial(delta_scan, form=form), delta_scan_loop, inputs | asked)


@settings(max_examples=25)
@given(size=sizes, decay=decays, delta=st.booleans(), chunk=st.integers(1, 14), seed=seeds)
def test_chunks_may_have_any_length(size: tuple[int, int, int, int], decay: str, delta: bool, chunk: int, seed: int):
    assert_twins(partial(delta_scan_torch, chunk=chunk), delta_scan_loop, draw_inputs(size, 2, decay, delta, seed))


@FORMS
@pytest.mark.parametrize("decay", ["none", "head", "channel"])
def test_they_hold_for_long_sequences(form: str, decay: str):
    """Many chunks, the last one short; decays whose running product underflows. a and b are small: the state stays of
    order 1 for 700 tokens, so that early tokens count."""
    inputs = draw_inputs((1, 700, 2, 3), 4, decay, True, 3, fade=-1.0 if decay == "channel" else 4.0)
    inputs |= {name: 0.3 * inputs[name] for name in ("a", "b")}
    assert_twins(partial(delta_scan, form=form), delta_scan_loop, inputs)


@FORMS
@pytest.mark.parametrize("decay", ["head", "channel"])
def test_a_state_may_be_wiped(form: str, decay: str):
    """w = 0 at some tokens, where a form that divides by products of w has nothing left."""
    inputs = draw_inputs((2, 40, 1, 3), 2, decay, True, 4)
    inputs["w"][:, ::7] = 0.0
    assert_twins(partial(delta_scan, form=form), delta_scan_loop, inputs)


@FORMS
def test_float32_loses_no_more_than_rounding(form: str):
    inputs = draw_inputs((2, 300, 1, 8), 40, "channel", True, 5)
    assert_twins(partial(delta_scan, form=form), delta_scan_loop, inputs, dtype=torch.float32)


def test_the_delta_rule_replaces_what_a_key_held():
    """k of unit length, b = -k, a = k: after a second write under one key the first value is gone."""
    k = torch.tensor([1.0, 0.0]).expand(1, 2, 1, 2)
    v = torch.tensor([[3.0, 4.0], [5.0, 6.0]]).view(1, 2, 1, 2)
    o = delta_scan(k, k, v, None, k, -k)
    assert torch.equal(o, v)


def test_threads_change_no_bit():
    """Sequences and heads are independent pieces of work; two threads get enough of it to start."""
    inputs = {name: x.requires_grad_() for name, x in draw_inputs((4, 64, 2, 16), 20, "channel", True, 6).items()}
    assert_threads_change_no_bit(lambda: output_and_gradients(delta_scan_compiled(**inputs), inputs).values(), 2)


@pytest.mark.parametrize("shape", [(0, 4, 1, 2), (2, 0, 1, 2)])
def test_nothing_comes_of_nothing(shape: tuple[int, int, int, int]):
    inputs = [x.requires_grad_() for x in draw_inputs(shape, 3, "head", True, 0).values()]
    o = delta_scan_compiled(*inputs)
    assert o.shape == (*shape[:3], 3)
    assert all((g == 0).all() for g in torch.autograd.grad(o.sum(), inputs))


def test_no_question_no_gradient():
    inputs = [x.requires_grad_() for x in draw_inputs((2, 4, 1, 2), 3, "head", True, 0).values()]
    o = delta_scan(inputs[0][:, :0], *inputs[1:], positions=torch.zeros(2, 0, dtype=torch.int64))
    assert all((g == 0).all() for g in torch.autograd.grad(o.sum(), inputs))


def test_what_does_not_fit_is_refused_with_the_way_out():
    inputs = draw_inputs((1, 4, 1, 2), 3, "none", True, 0)
    with pytest.raises(ValueError, match="come together"):
        delta_scan(inputs["q"], inputs["k"], inputs["v"], a=inputs["a"])
    with pytest.raises(ValueError, match="3 queries for 4 tokens"):
        delta_scan_compiled(inputs["q"][:, :3], inputs["k"], inputs["v"])
    with pytest.raises(TypeError, match="form='torch'"):
        delta_scan_compiled(*(x.half() for x in inputs.values()))
    with pytest.raises(ValueError, match="Use chunk >= 1"):
        delta_scan_torch(inputs["q"], inputs["k"], inputs["v"], chunk=0)
    with pytest.raises(IndexError, match="outside the sequence"):
        delta_scan(inputs["q"], inputs["k"], inputs["v"], positions=torch.full((1, 4), 4))
