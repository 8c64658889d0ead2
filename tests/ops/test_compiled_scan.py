"""The C kernel at its edges: odd shapes, extreme numbers, any memory layout, threads, and life without a compiler."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from recallscope.ops import selective_scan, selective_scan_compiled, selective_scan_loop
from recallscope.ops.compiled import library
from recallscope.ops.conv import ConvArguments
from recallscope.ops.delta_scan_compiled import DeltaArguments
from recallscope.ops.selective_scan_compiled import ScanArguments


def draw_inputs(batch: int, L: int, D_in: int, N: int, *, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    g = torch.Generator().manual_seed(0)
    x_hat, delta, A, B, C = (
        torch.randn(*s, generator=g, dtype=dtype)
        for s in ((batch, L, D_in), (batch, L, D_in), (D_in, N), (batch, L, N), (batch, L, N))
    )
    return [x_hat, delta.exp(), -A.exp(), B, C]


def gradients(inputs: list[Tensor], **options: Tensor) -> list[Tensor]:
    leaves = [v.clone().requires_grad_() for v in inputs]
    y = selective_scan_compiled(*leaves, **options)
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=y.dtype)
    return [y.detach(), *torch.autograd.grad(y, leaves, weight)]


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_it_was_built() -> None:
    assert library() is not None, "the tests below need a C compiler; `log` says what is wrong with this one"


def test_c_and_python_mean_the_same_structures() -> None:
    kernels = library()
    assert kernels is not None
    assert kernels.scan_arguments_size() == ctypes.sizeof(ScanArguments)
    assert kernels.conv_arguments_size() == ctypes.sizeof(ConvArguments)
    assert kernels.delta_arguments_size() == ctypes.sizeof(DeltaArguments)


@pytest.mark.parametrize(("dtype", "ulps"), [(torch.float32, 2.0), (torch.float64, 2.0)])
def test_its_exp_is_exact_to_rounding(dtype: torch.dtype, ulps: float) -> None:
    """One token writes 1, the next only lets it decay: y = exp(A), if Δ A needs no rounding.

    The kernel takes exp(Δ A) as a power of two, and A log2(e) is rounded once: that error grows with |A|.
    """
    A = torch.linspace(-80, 80, 4001, dtype=dtype)[:, None]
    x = torch.tensor([1.0, 0.0], dtype=dtype)[None, :, None].expand(1, 2, 4001)
    ones = torch.ones(1, 2, 1, dtype=dtype)
    y = selective_scan_compiled(x, torch.ones_like(x), A, ones, ones)[0, 1]
    exact = A[:, 0].double().exp() if dtype == torch.float32 else A[:, 0].exp()
    allowed = torch.finfo(dtype).eps * (ulps + A[:, 0].abs().double())
    assert (((y.double() - exact) / exact).abs() <= allowed).all()


def test_its_softplus_is_torchs() -> None:
    """From values that vanish to those beyond torch's threshold of 20; with its slope."""
    v = torch.linspace(-60, 60, 2401, dtype=torch.float64)[None, None].requires_grad_()
    one, A = torch.ones(1, 1, 1, dtype=torch.float64), torch.zeros(2401, 1, dtype=torch.float64)
    y = selective_scan_compiled(torch.ones_like(v), v, A, one, one, delta_bias=torch.zeros(2401, dtype=torch.float64))
    expected = torch.nn.functional.softplus(v)
    torch.testing.assert_close(y, expected, rtol=1e-13, atol=0.0)
    (ours,), (theirs,) = torch.autograd.grad(y.sum(), v), torch.autograd.grad(expected.sum(), v)
    torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 1, 3, 2), (3, 5, 2, 1), (2, 18, 1, 3)])
def test_gradients_are_derivatives(shape: tuple[int, int, int, int]) -> None:
    """The backward pass is written by hand; finite differences are the judge."""
    D_in = shape[2]
    more = [torch.randn(D_in, generator=torch.Generator().manual_seed(s), dtype=torch.float64) for s in (1, 2)]
    inputs = [v.requires_grad_() for v in (*draw_inputs(*shape), *more)]
    assert gradcheck(lambda *v: selective_scan_compiled(*v[:6], delta_bias=v[6]), inputs)


@pytest.mark.parametrize("shape", [(0, 4, 3, 2), (2, 4, 3, 0), (1, 1, 1, 1)])
def test_nothing_comes_of_nothing(shape: tuple[int, int, int, int]) -> None:
    inputs = draw_inputs(*shape)
    y, *grads = gradients(inputs)
    torch.testing.assert_close(y, selective_scan_loop(*inputs))
    assert [g.shape for g in grads] == [v.shape for v in inputs]
    assert all(torch.isfinite(g).all() for g in grads)


def test_no_question_no_gradient() -> None:
    x_hat, delta, A, B, C = draw_inputs(2, 4, 3, 2)
    nobody = torch.zeros(2, 0, dtype=torch.int64)
    y, *grads = gradients([x_hat, delta, A, B, C[:, :0]], positions=nobody)
    assert y.shape == (2, 0, 3)
    assert all((g == 0).all() for g in grads)


@pytest.mark.parametrize("bad", [-1, 4, 2**40])
def test_a_position_outside_the_sequence_is_refused(bad: int) -> None:
    x_hat, delta, A, B, C = draw_inputs(2, 4, 3, 2)
    positions = torch.tensor([[0, 1], [2, bad]])
    with pytest.raises(IndexError, match="outside the sequence"):
        selective_scan_compiled(x_hat, delta, A, B, C[:, :2], positions=positions)


def test_without_positions_every_token_needs_its_query() -> None:
    x_hat, delta, A, B, C = draw_inputs(2, 4, 3, 2)
    with pytest.raises(IndexError):
        selective_scan_compiled(x_hat, delta, A, B, C[:, :2])


def test_it_takes_views_and_any_number_of_batch_axes() -> None:
    x_hat, delta, A, B, C = draw_inputs(6, 5, 3, 2)
    together = selective_scan_loop(x_hat, delta, A, B, C)
    folded = selective_scan_compiled(*(v if v is A else v.unflatten(0, (2, 3)) for v in (x_hat, delta, A, B, C)))
    torch.testing.assert_close(folded.flatten(0, 1), together)
    every_second = selective_scan_compiled(*(v if v is A else v[::2] for v in (x_hat, delta, A, B, C)))
    torch.testing.assert_close(every_second, together[::2])
    side_by_side = torch.cat((B, C, x_hat), dim=-1)
    slices = side_by_side.split((2, 2, 3), dim=-1)
    torch.testing.assert_close(selective_scan_compiled(slices[2], delta, A, slices[0], slices[1]), together)
    turned = [v if v is A else v.mT.contiguous().mT for v in (x_hat, delta, A, B, C)]
    torch.testing.assert_close(selective_scan_compiled(*turned[:2], A.T.contiguous().T, *turned[3:]), together)


def test_other_precisions_and_mixtures_are_refused() -> None:
    inputs = draw_inputs(1, 3, 2, 2)
    with pytest.raises(TypeError, match=r"bfloat16 on cpu.*form='torch'"):
        selective_scan_compiled(*(v.bfloat16() for v in inputs))
    with pytest.raises(TypeError, match="the same for all"):
        selective_scan_compiled(inputs[0].float(), *inputs[1:])
    assert selective_scan(*(v.bfloat16() for v in inputs)).dtype == torch.bfloat16


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", range(5))
def test_bad_numbers_stay_in_their_own_sequence(where: int, bad: float) -> None:
    """Nothing crashes; other sequences are untouched; what the loop calls not finite, so does the kernel."""
    inputs = draw_inputs(3, 40, 35, 4)
    clean = gradients(inputs)
    inputs[where] = inputs[where].clone()
    inputs[where][1, 2 if where != 2 else 1] = bad
    y, *grads = gradients(inputs)
    expected = selective_scan_loop(*inputs)
    if where == 2:
        assert torch.isfinite(y[..., 2:]).all()
    else:
        for ours, theirs in zip([y, *grads[:2], *grads[3:]], [clean[0], *clean[1:3], *clean[4:]], strict=True):
            assert torch.equal(ours[[0, 2]], theirs[[0, 2]])
    assert (torch.isfinite(expected) | ~torch.isfinite(y)).all()


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    """Bit for bit, gradients summed over batch and channels included; 200 channels make two pieces of a row."""
    inputs = draw_inputs(37, 30, 200, 5, dtype=torch.float32)
    found = []
    for count in (1, 2, 5):
        with threads(count):
            found.append(gradients(inputs))
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


def test_a_forked_child_can_scan_too() -> None:
    """Threads of ours live for one call: none is missed after a fork."""
    run_python(
        "import os, torch\n"
        "from recallscope.ops import selective_scan_compiled\n"
        "torch.set_num_threads(2)\n"
        "x, B = torch.ones(8, 64, 64), torch.ones(8, 64, 8)\n"
        "before = selective_scan_compiled(x, x, -torch.ones(64, 8), B, B)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    same = torch.equal(before, selective_scan_compiled(x, x, -torch.ones(64, 8), B, B))\n"
        "    os._exit(0 if same else 1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0\n"
    )


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux how much memory a process had at most")
def test_memory_does_not_grow_with_the_state() -> None:
    """N = 16 and L = 4096: all states would be 270 MB; forward and backward stay below 60 (x̂ is 4)."""
    code = (
        "import torch\n"
        "from recallscope.ops import selective_scan_compiled\n"
        "torch.set_num_threads(1)\n"
        "x = torch.randn(1, 4096, 256, requires_grad=True); B = torch.randn(1, 4096, 16, requires_grad=True)\n"
        "A = -torch.rand(256, 16)\n"
        "selective_scan_compiled(x[:, :8], x[:, :8].exp(), A, B[:, :8], B[:, :8]).sum().backward()\n"
        "def high_water():\n"
        "    return int(open('/proc/self/status').read().split('VmHWM:')[1].split()[0])\n"
        "before = high_water()\n"
        "selective_scan_compiled(x, x.exp(), A, B, B).sum().backward()\n"
        "print(high_water() - before)\n"
    )
    grown = int(run_python(code).stdout)
    assert grown < 60_000, f"{grown} kB"


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
    )


REPORT = (
    "import logging, torch\n"
    "logging.basicConfig(level=logging.INFO, format='%(levelname)s %(message)s')\n"
    "torch.set_num_threads(1)\n"
    "from recallscope.ops import selective_scan\n"
    "x = torch.ones(1, 3, 2)\n"
    "for _ in range(2):\n"
    "    print(selective_scan(x, x, -torch.ones(2, 4), torch.ones(1, 3, 4), torch.ones(1, 3, 4))[0, :, 0].tolist())\n"
)


@pytest.mark.parametrize(
    "surroundings",
    [{"PATH": "", "CC": ""}, {"CC": "no-such-compiler"}, {"CC": "false"}],
    ids=["no compiler", "one that is not there", "one that fails"],
)
def test_without_a_compiler_torch_computes_and_the_log_says_so_once(
    tmp_path: Path, surroundings: dict[str, str]
) -> None:
    done = run_python(REPORT, **surroundings, RECALLSCOPE_CACHE=str(tmp_path))
    first, second = done.stdout.splitlines()
    assert first == second
    assert first.startswith("[4.0, 5.47")
    assert done.stderr.count("WARNING compiled kernels are not available, torch computes instead") == 1
    assert done.stderr.count("INFO selective scan: recallscope's torch form") == 1


def test_forcing_it_without_a_compiler_says_what_to_do(tmp_path: Path) -> None:
    code = REPORT + "selective_scan(x, x, -torch.ones(2, 4), torch.ones(1, 3, 4), torch.ones(1, 3, 4), form='compiled')"
    with pytest.raises(subprocess.CalledProcessError) as caught:
        run_python(code, PATH="", CC="", RECALLSCOPE_CACHE=str(tmp_path))
    assert "Use form='torch', or install gcc or clang" in caught.value.stderr
