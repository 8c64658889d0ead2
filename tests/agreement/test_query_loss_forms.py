"""The fused loss agrees with logits followed by cross-entropy, in value and both gradients, whatever the chunks."""

import ctypes

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recallscope.ops import query_loss as module
from recallscope.ops.compiled import library
from recallscope.ops.query_loss import (
    SoftmaxArguments,
    _softmax_gradient_compiled,
    _softmax_gradient_torch,
    plain_query_loss,
    query_loss,
)


def both(Q, D, V, smoothing, seed, dtype=torch.float64, scale=1.0):
    g = torch.Generator().manual_seed(seed)
    y = (scale * torch.randn(Q, D, generator=g, dtype=dtype)).requires_grad_()
    E = torch.randn(D, V, generator=g, dtype=dtype).requires_grad_()
    answers = torch.randint(V, (Q,), generator=g)
    results = []
    for loss_of in (plain_query_loss, query_loss):
        loss = loss_of(y, E, answers, smoothing)
        results.append((loss.detach(), *torch.autograd.grad(3 * loss, (y, E))))
    return results


@given(
    Q=st.integers(1, 40), D=st.integers(1, 9), V=st.integers(2, 50), smoothing=st.sampled_from([0.0, 0.1, 0.7]),
    seed=st.integers(0, 99), chunk=st.sampled_from([1, 7, 64, 2**20]),
)  # fmt: skip
def test_fused_loss_equals_plain_loss(Q, D, V, smoothing, seed, chunk):
    whole, module.CHUNK_ENTRIES = module.CHUNK_ENTRIES, chunk
    try:
        plain, fused = both(Q, D, V, smoothing, seed)
    finally:
        module.CHUNK_ENTRIES = whole
    for a, b in zip(plain, fused, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


def test_gradcheck():
    g = torch.Generator().manual_seed(0)
    y = torch.randn(5, 3, generator=g, dtype=torch.float64, requires_grad=True)
    E = torch.randn(3, 11, generator=g, dtype=torch.float64, requires_grad=True)
    answers = torch.randint(11, (5,), generator=g)
    assert torch.autograd.gradcheck(lambda a, b: query_loss(a, b, answers, 0.1), (y, E))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 300.0])
def test_single_precision_at_the_sizes_of_training(scale):
    """Logits in the thousands too: no overflow, nothing lost."""
    plain, fused = both(256, 32, 512, 0.1, 0, torch.float32, scale)
    for a, b in zip(plain, fused, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-6 * float(a.abs().max()))


@pytest.mark.skipif(library() is None, reason="no C compiler here")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(Q=st.integers(1, 9), V=st.integers(1, 70), scale=st.sampled_from([0.1, 10.0, 1e4]), seed=st.integers(0, 99))
def test_the_kernel_turns_logits_into_the_same_gradient(dtype, Q, V, scale, seed):
    g = torch.Generator().manual_seed(seed)
    logits = scale * torch.randn(Q, V, generator=g, dtype=dtype)
    answers = torch.randint(V, (Q,), generator=g)
    ours, theirs = logits.clone(), logits.clone()
    a, b = _softmax_gradient_compiled(ours, answers, 0.1), _softmax_gradient_torch(theirs, answers, 0.1)
    tolerance = 1e-6 if dtype == torch.float32 else 1e-14
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance)
    torch.testing.assert_close(a, b, rtol=10 * tolerance, atol=10 * tolerance * scale)


@pytest.mark.skipif(library() is None, reason="no C compiler here")
def test_c_and_python_mean_the_same_structure():
    size = library().softmax_arguments_size
    size.restype = ctypes.c_int64
    assert size() == ctypes.sizeof(SoftmaxArguments)
