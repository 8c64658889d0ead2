"""The fused loss agrees with logits followed by cross-entropy, in value and both gradients, whatever the chunks."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from closeness import assert_near, assert_twins, draw
from recallscope.ops import query_loss as module
from recallscope.ops.compiled import library
from recallscope.ops.query_loss import _softmax_gradient_compiled, _softmax_gradient_torch, plain_query_loss, query_loss


def draw_inputs(Q, D, V, seed, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    inputs = {"y": scale * draw(g, Q, D), "E": draw(g, D, V)}
    return inputs, torch.randint(V, (Q,), generator=g)


@given(
    Q=st.integers(1, 40), D=st.integers(1, 9), V=st.integers(2, 50), smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    seed=st.integers(0, 99), chunk=st.sampled_from([1, 7, 64, 2**20]),
)  # fmt: skip
def test_fused_loss_equals_plain_loss(Q, D, V, smoothing, seed, chunk):
    inputs, answers = draw_inputs(Q, D, V, seed)
    options = {"answers": answers, "label_smoothing": smoothing}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CHUNK_ENTRIES", chunk)
        assert_twins(partial(query_loss, **options), partial(plain_query_loss, **options), inputs)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_single_precision_at_the_sizes_of_training(scale):
    """Logits in the thousands too: no overflow, nothing lost."""
    inputs, answers = draw_inputs(256, 32, 512, 0, scale)
    options = {"answers": answers, "label_smoothing": 0.1}
    fused, plain = partial(query_loss, **options), partial(plain_query_loss, **options)
    assert_twins(fused, plain, inputs, dtype=torch.float32)


@pytest.mark.skipif(library() is None, reason="no C compiler here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(Q=st.integers(1, 9), V=st.integers(1, 70), scale=st.sampled_from([0.1, 10.0, 1e4]), seed=st.integers(0, 99))
def test_the_kernel_turns_logits_into_the_same_gradient(dtype, Q, V, scale, seed):
    g = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(Q, V, generator=g, dtype=dtype)
    answers = torch.randint(V, (Q,), generator=g)
    ours, theirs = logits.clone(), logits.clone()
    a, b = _softmax_gradient_compiled(ours, answers, 0.1), _softmax_gradient_torch(theirs, answers, 0.1)
    assert_near(ours, theirs, terms=1.0)  # probabilities
    assert_near(a, b, terms=logits)
