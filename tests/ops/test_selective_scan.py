"""The selective scan, Eq. 2-3: C kernel = torch form = the printed recurrence, gradients included; its limits and edges
(odd shapes, extreme numbers, any memory layout, threads), and who computes it."""

import logging
import math
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import softplus

from closeness import assert_near, assert_threads_change_no_bit, assert_twins, draw, output_and_gradients
from recallscope.ops.linear_scan import at_positions, scan_loop
from recallscope.ops.selective_scan import (
    _kernel_fits,
    _kernel_scan,
    _say_once,
    selective_read_at,
    selective_scan,
    selective_scan_loop,
)
from recallscope.ops.selective_scan_compiled import selective_scan_compiled
from recallscope.ops.selective_scan_torch import selective_scan_torch

FORMS = pytest.mark.parametrize("form", ["loop", "torch", "compiled", "auto"])
FAST = {"compiled": selective_scan_compiled, "torch": selective_scan_torch}
BOTH_FAST = pytest.mark.parametrize("form", FAST)
batches, lengths, states = st.integers(1, 4), st.integers(1, 40), st.integers(1, 20)
channels = st.one_of(st.integers(1, 8), st.sampled_from([31, 32, 33, 63, 64, 65, 130]))
shapes = st.tuples(batches, lengths, channels, states)
small_shapes = st.tuples(*(st.integers(1, n) for n in (5, 9, 4, 4)))
seeds = st.integers(0, 2**31)


def draw_inputs(batch: int, L: int, D_in: int, N: int, seed: int = 0, delta_shift: float = 0.0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {
        "x_hat": draw(g, batch, L, D_in),
        "delta": softplus(draw(g, batch, L, D_in) + delta_shift),
        "A": -draw(g, D_in, N).exp(),
        "B": draw(g, batch, L, N),
        "C": draw(g, batch, L, N),
    }


def loop_with_softplus(delta: Tensor, delta_bias: Tensor, skip: Tensor, **inputs: Tensor) -> Tensor:
    return selective_scan(delta=softplus(delta + delta_bias), skip=skip, form="loop", **inputs)


def loop_read_at(positions: Tensor, C_q: Tensor, x_hat: Tensor, **inputs: Tensor) -> Tensor:
    """One query after the other: C everywhere equal to the query's, read at its token."""
    L = x_hat.shape[1]
    columns = []
    for q in range(positions.shape[1]):
        C = C_q[:, q : q + 1].expand(-1, L, -1)
        y_hat = loop_with_softplus(x_hat=x_hat, C=C, **inputs)
        columns.append(at_positions(y_hat, positions[:, q : q + 1]))
    return torch.cat(columns, dim=1)


@given(shape=shapes, seed=seeds)
def test_the_kernel_is_the_loop(shape: tuple[int, int, int, int], seed: int) -> None:
    assert_twins(selective_scan_compiled, selective_scan_loop, draw_inputs(*shape, seed))


@given(shape=small_shapes, rows=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_the_torch_form_is_the_loop_however_the_batch_is_split(
    shape: tuple[int, int, int, int], rows: int, seed: int
) -> None:
    assert_twins(partial(selective_scan_torch, rows=rows), selective_scan_loop, draw_inputs(*shape, seed))


@given(shape=small_shapes, seed=st.integers(0, 2**31))
def test_the_skip_weight_adds_the_input(shape: tuple[int, int, int, int], seed: int) -> None:
    inputs = draw_inputs(*shape, seed)
    inputs["skip"] = draw(torch.Generator().manual_seed(seed), shape[2])
    assert_twins(partial(selective_scan, form="torch"), partial(selective_scan, form="loop"), inputs)
    bare = selective_scan(**{name: v for name, v in inputs.items() if name != "skip"})
    assert_near(selective_scan(**inputs), bare + inputs["skip"] * inputs["x_hat"])


@given(shape=shapes, seed=seeds)
def test_softplus_and_skip_are_fused_without_a_trace(shape: tuple[int, int, int, int], seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    inputs = draw_inputs(*shape, seed) | {"skip": draw(g, shape[2]), "delta_bias": 5 * draw(g, shape[2])}
    inputs["delta"] = 5 * draw(g, *inputs["delta"].shape)
    assert_twins(selective_scan_compiled, loop_with_softplus, inputs)


@BOTH_FAST
@given(shape=shapes, Q=st.integers(1, 6), seed=seeds)
def test_reading_at_positions_is_the_loop_there(form: str, shape: tuple[int, int, int, int], Q: int, seed: int) -> None:
    """Positions in any order, some of them twice."""
    batch, L, D_in, N = shape
    g = torch.Generator().manual_seed(seed)
    inputs = draw_inputs(*shape, seed) | {"skip": draw(g, D_in), "delta_bias": draw(g, D_in)}
    del inputs["C"]
    inputs |= {"C_q": draw(g, batch, Q, N), "positions": torch.randint(0, L, (batch, Q), generator=g)}
    assert_twins(partial(selective_read_at, form=form), loop_read_at, inputs)


@BOTH_FAST
@pytest.mark.parametrize("delta_shift", [-12.0, 5.0, 80.0, 700.0])
def test_it_holds_where_states_are_kept_and_where_they_are_wiped(form: str, delta_shift: float) -> None:
    """Δ near 0 (nothing decays, nothing is written) up to Δ near 700 (Ā underflows to 0)."""
    assert_twins(FAST[form], selective_scan_loop, draw_inputs(3, 40, 34, 5, seed=1, delta_shift=delta_shift))


@BOTH_FAST
def test_it_holds_where_states_grow(form: str) -> None:
    """A > 0 is no Mamba's, but nothing in Eq. 2 forbids it: h grows to e^30."""
    inputs = draw_inputs(2, 30, 5, 3, seed=3)
    inputs["A"], inputs["delta"] = inputs["A"].abs().clamp(max=2.0), torch.full_like(inputs["delta"], 0.5)
    assert_twins(FAST[form], selective_scan_loop, inputs)


@pytest.mark.parametrize(("form", "N"), [("compiled", 1), ("compiled", 3), ("compiled", 70), ("torch", 3)])
def test_it_holds_for_long_sequences(form: str, N: int) -> None:
    """Many chunks, the last one short; where a scan that divides by the product of Ā has lost every digit."""
    inputs = draw_inputs(2, 3001 if N < 70 else 300, 2, N, seed=2, delta_shift=-3.0)
    assert_twins(FAST[form], selective_scan_loop, inputs)


@BOTH_FAST
def test_float32_loses_no_more_than_rounding(form: str) -> None:
    assert_twins(FAST[form], selective_scan_loop, draw_inputs(2, 400, 40, 4, seed=3), dtype=torch.float32)


def test_rows_beyond_the_first_buffer_do_not_see_what_it_held() -> None:
    """Seven rows in buffers of three: the last slice is shorter than the buffer it reuses."""
    inputs = draw_inputs(7, 5, 3, 2, seed=5)
    whole = selective_scan_torch(**inputs, rows=3)
    alone = [selective_scan_torch(**{n: v if n == "A" else v[i] for n, v in inputs.items()}) for i in range(7)]
    assert_near(whole, torch.stack(alone))


@FORMS
def test_without_decay_and_with_unit_steps_it_is_the_linear_scan(form) -> None:
    """A = 0 and Δ = 1 give Ā = 1 and B̄ = B: Eq. 3 becomes Eq. 4."""
    x_hat, delta, A, B, C = draw_inputs(2, 7, 3, 4).values()
    y_hat = selective_scan(x_hat, torch.ones_like(delta), torch.zeros_like(A), B, C, form=form)
    assert_near(y_hat, scan_loop(x_hat, B, C))


@FORMS
def test_a_large_step_forgets_all_but_the_present(form) -> None:
    """Δ A = -1000: Ā is 0, and ŷ_t = Δ_t x̂_t (B_t · C_t)."""
    x_hat, delta, A, B, C = draw_inputs(2, 7, 3, 4).values()
    delta, A = torch.full_like(delta, 1000.0), torch.full_like(A, -1.0)
    y_hat = selective_scan(x_hat, delta, A, B, C, form=form)
    assert_near(y_hat, delta * x_hat * (B * C).sum(dim=-1, keepdim=True))


@FORMS
def test_one_channel_decays_as_a_geometric_series(form) -> None:
    """x̂ = B = C = Δ = 1 and A = -log 2: h_t = 1 + 1/2 + 1/4 + ..."""
    ones = torch.ones(1, 5, 1, dtype=torch.float64)
    A = torch.full((1, 1), -math.log(2), dtype=torch.float64)
    y_hat = selective_scan(ones, ones, A, ones, ones, form=form)
    assert_near(y_hat[0, :, 0], torch.tensor([1, 1.5, 1.75, 1.875, 1.9375], dtype=torch.float64))


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
    (ours,), (theirs,) = torch.autograd.grad(y.sum(), v), torch.autograd.grad(expected.sum(), v)
    for mine, wanted in ((y, expected), (ours, theirs)):  # entry by entry: nothing is added up, so small ones are exact
        assert_near(mine / wanted, torch.ones_like(wanted))


@pytest.mark.parametrize("shape", [(0, 4, 3, 2), (2, 4, 3, 0), (1, 1, 1, 1)])
def test_nothing_comes_of_nothing(shape: tuple[int, int, int, int]) -> None:
    assert_twins(selective_scan_compiled, selective_scan_loop, draw_inputs(*shape))


def test_no_question_no_gradient() -> None:
    inputs = draw_inputs(2, 4, 3, 2)
    leaves = {name: v[:, :0] if name == "C" else v for name, v in inputs.items()}
    leaves = {name: v.requires_grad_() for name, v in leaves.items()}
    y = selective_scan_compiled(**leaves, positions=torch.zeros(2, 0, dtype=torch.int64))
    assert y.shape == (2, 0, 3)
    assert all((found == 0).all() for found in output_and_gradients(y, leaves).values())


@pytest.mark.parametrize("bad", [-1, 4, 2**40])
def test_a_position_outside_the_sequence_is_refused(bad: int) -> None:
    x_hat, delta, A, B, C = draw_inputs(2, 4, 3, 2).values()
    positions = torch.tensor([[0, 1], [2, bad]])
    with pytest.raises(IndexError, match="outside the sequence"):
        selective_scan_compiled(x_hat, delta, A, B, C[:, :2], positions=positions)


def test_without_positions_every_token_needs_its_query() -> None:
    x_hat, delta, A, B, C = draw_inputs(2, 4, 3, 2).values()
    with pytest.raises(IndexError):
        selective_scan_compiled(x_hat, delta, A, B, C[:, :2])


@BOTH_FAST
def test_it_takes_views_and_any_number_of_batch_axes(form: str) -> None:
    scan, inputs = FAST[form], draw_inputs(6, 5, 3, 2)
    x_hat, delta, A, B, C = inputs.values()
    together = selective_scan_loop(**inputs)

    def each(change) -> list[Tensor]:
        return [v if v is A else change(v) for v in inputs.values()]

    assert_near(scan(*each(lambda v: v.unflatten(0, (2, 3)))).flatten(0, 1), together)
    assert_near(scan(*each(lambda v: v[::2])), together[::2])
    assert_near(scan(*each(lambda v: v.flip(0)[::2])), together.flip(0)[::2])
    x_slice, B_slice, C_slice = torch.cat((x_hat, B, C), dim=-1).split((3, 2, 2), dim=-1)
    assert_near(scan(x_slice, delta, A, B_slice, C_slice), together)
    turned = each(lambda v: v.mT.contiguous().mT)
    assert_near(scan(*turned[:2], A.T.contiguous().T, *turned[3:]), together)


def test_other_precisions_and_mixtures_are_refused() -> None:
    inputs = list(draw_inputs(1, 3, 2, 2).values())
    with pytest.raises(TypeError, match=r"bfloat16 on cpu.*form='torch'"):
        selective_scan_compiled(*(v.bfloat16() for v in inputs))
    with pytest.raises(TypeError, match="the same for all"):
        selective_scan_compiled(inputs[0].float(), *inputs[1:])
    assert selective_scan(*(v.bfloat16() for v in inputs)).dtype == torch.bfloat16


def kernel_and_gradients(inputs: list[Tensor]) -> list[Tensor]:
    leaves = {str(i): v.clone().requires_grad_() for i, v in enumerate(inputs)}
    return list(output_and_gradients(selective_scan_compiled(*leaves.values()), leaves).values())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", range(5))
def test_bad_numbers_stay_in_their_own_sequence(where: int, bad: float) -> None:
    """Nothing crashes; other sequences are untouched; what the loop calls not finite, so does the kernel."""
    inputs = list(draw_inputs(3, 40, 35, 4).values())
    clean = kernel_and_gradients(inputs)
    inputs[where] = inputs[where].clone()
    inputs[where][1, 2 if where != 2 else 1] = bad
    y, *grads = kernel_and_gradients(inputs)
    expected = selective_scan_loop(*inputs)
    if where == 2:
        assert torch.isfinite(y[..., 2:]).all()
    else:
        for ours, theirs in zip([y, *grads[:2], *grads[3:]], [clean[0], *clean[1:3], *clean[4:]], strict=True):
            assert torch.equal(ours[[0, 2]], theirs[[0, 2]])
    assert (torch.isfinite(expected) | ~torch.isfinite(y)).all()


def test_threads_change_no_bit() -> None:
    """Gradients summed over batch and channels included; 200 channels make two pieces of a row."""
    inputs = [v.float() for v in draw_inputs(37, 30, 200, 5).values()]
    assert_threads_change_no_bit(lambda: kernel_and_gradients(inputs), 2, 5)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="asks Linux how much memory a process had at most")
def test_memory_does_not_grow_with_the_state() -> None:
    """N = 16 and L = 4096: all states would be 270 MB; forward and backward stay below 60 (x̂ is 4)."""
    code = (
        "import torch\n"
        "from recallscope.ops.selective_scan_compiled import selective_scan_compiled\n"
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
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown = int(done.stdout)
    assert grown < 60_000, f"{grown} kB"


@pytest.mark.parametrize(
    ("asked", "who"),
    [("auto", "recallscope's C kernel"), ("torch", "recallscope's torch form"), ("loop", "the printed recurrence")],
)
def test_who_computes_is_said_once_and_the_environment_may_choose(caplog, monkeypatch, asked, who) -> None:
    _say_once.cache_clear()
    monkeypatch.setenv("RECALLSCOPE_SCAN", asked)
    inputs = draw_inputs(1, 3, 2, 2).values()
    with caplog.at_level(logging.INFO, logger="recallscope"):
        for _ in range(3):
            selective_scan(*inputs)
    assert [record.message for record in caplog.records] == [f"selective scan: {who}"]


def test_without_a_compiler_torch_computes(caplog, monkeypatch) -> None:
    _say_once.cache_clear()
    monkeypatch.setattr(sys.modules["recallscope.ops.selective_scan"], "available", lambda: False)
    with caplog.at_level(logging.INFO, logger="recallscope"):
        selective_scan(*draw_inputs(1, 3, 2, 2).values())
    assert [record.message for record in caplog.records] == ["selective scan: recallscope's torch form"]


def test_a_form_the_environment_made_up_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("RECALLSCOPE_SCAN", "fast")
    with pytest.raises(ValueError, match=r"RECALLSCOPE_SCAN='fast' must be one of auto, loop, torch, compiled"):
        selective_scan(*draw_inputs(1, 3, 2, 2).values())


def test_the_cuda_kernel_is_not_asked_on_a_cpu() -> None:
    x_hat, *_ = draw_inputs(1, 3, 2, 2).values()
    assert not _kernel_fits(x_hat, 2)


def test_the_kernel_is_handed_its_own_layout_and_answers_in_ours(monkeypatch) -> None:
    """mamba-ssm wants (batch, channel, time); a stand-in computes the recurrence in that layout."""

    def stand_in(u: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor) -> Tensor:
        assert A.dtype == torch.float32
        h, out = torch.zeros(*u.shape[:2], A.shape[1]), []
        for t in range(u.shape[2]):
            step = delta[:, :, t, None]
            h = torch.exp(step * A) * h + step * B[:, None, :, t] * u[:, :, t, None]
            out.append((h * C[:, None, :, t]).sum(dim=-1))
        return torch.stack(out, dim=2)

    for name in ("mamba_ssm", "mamba_ssm.ops", "mamba_ssm.ops.selective_scan_interface"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["mamba_ssm.ops.selective_scan_interface"].selective_scan_fn = stand_in  # type: ignore[attr-defined]
    inputs = [v.float() for v in draw_inputs(6, 5, 3, 2).values()]
    assert_near(_kernel_scan(*inputs), selective_scan_loop(*inputs))
