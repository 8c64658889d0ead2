"""The C kernel of the linear circuit against its form in tensor operations, values and gradient."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from recallscope.ops import table_recall as module
from recallscope.ops.compiled import library
from recallscope.ops.table_recall import (
    Lookup,
    RecallArguments,
    _compiled,
    _compiled_grad,
    table_recall_grad_torch,
    table_recall_torch,
)

needs_compiler = pytest.mark.skipif(library() is None, reason="no C compiler here")


def lookup(batch, L, Q, D_conv, rows, N, D, seed, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    return Lookup(
        torch.randint(rows, (batch, L), generator=g),
        torch.randint(L, (batch, Q), generator=g),
        torch.randn(D_conv, rows, 2 * N + D, generator=g, dtype=dtype),
        N,
    )


@needs_compiler
@given(
    batch=st.integers(1, 3), L=st.integers(1, 40), Q=st.integers(1, 9), D_conv=st.integers(1, 4),
    rows=st.integers(1, 30), N=st.integers(1, 20), D=st.integers(1, 40), seed=st.integers(0, 99),
)  # fmt: skip
def test_kernel_equals_tensor_operations(batch, L, Q, D_conv, rows, N, D, seed):
    what = lookup(batch, L, Q, D_conv, rows, N, D, seed)
    torch.testing.assert_close(_compiled(what), table_recall_torch(what), rtol=1e-11, atol=1e-11)
    y_grad = torch.randn(batch, Q, D, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    ours, theirs = _compiled_grad(what, y_grad), table_recall_grad_torch(what, y_grad)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@given(seed=st.integers(0, 20))
def test_gradient_is_the_derivative(seed):
    what = lookup(2, 6, 2, 2, 5, 2, 3, seed)
    table = what.table.clone().requires_grad_()
    y = _differentiable(what._replace(table=table))
    y_grad = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    (expected,) = torch.autograd.grad(y, table, y_grad)
    torch.testing.assert_close(table_recall_grad_torch(what, y_grad), expected, rtol=1e-10, atol=1e-12)


def _differentiable(what):
    """The sum as it is written, one token after the other."""
    D_conv, N = what.table.shape[0], what.state_dim
    read = []
    for ids, positions in zip(what.ids, what.positions, strict=True):
        hashed = [
            sum(what.table[j, ids[t - D_conv + 1 + j]] for j in range(D_conv) if t - D_conv + 1 + j >= 0)
            for t in range(len(ids))
        ]
        for t in positions:
            C = hashed[t][-N:]
            read.append(sum(h[N:-N] * (h[:N] @ C) for h in hashed[: t + 1]))
    return torch.stack(read).view(*what.positions.shape, -1)


@needs_compiler
def test_single_precision():
    what = lookup(8, 64, 16, 2, 128, 16, 32, 0, torch.float32)
    torch.testing.assert_close(_compiled(what), table_recall_torch(what), rtol=1e-4, atol=1e-3)


@needs_compiler
@pytest.mark.parametrize("bad", [-1, 30])
def test_ids_and_positions_outside_are_refused(bad):
    what = lookup(2, 30, 2, 2, 30, 2, 3, 0)
    ids, positions = what.ids.clone(), what.positions.clone()
    ids[1, 3] = bad
    positions[1, 0] = bad
    for wrong in (what._replace(ids=ids), what._replace(positions=positions)):
        with pytest.raises(IndexError, match="outside"):
            _compiled(wrong)


@needs_compiler
def test_c_and_python_mean_the_same_structure():
    import ctypes

    size = library().recall_arguments_size
    size.restype = ctypes.c_int64
    assert size() == ctypes.sizeof(RecallArguments)


def test_long_sequences_go_to_torch():
    assert not module._use_kernel(lookup(1, module.LONGEST + 1, 1, 2, 4, 2, 2, 0))
