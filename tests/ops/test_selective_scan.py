"""The selective scan at its limits, and who computes it."""

import logging
import math
import sys
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from recallscope.ops import scan_loop, selective_scan, selective_scan_loop, selective_scan_torch
from recallscope.ops.selective_scan import _kernel_fits, _kernel_scan, _say_once

FORMS = pytest.mark.parametrize("form", ["loop", "torch", "compiled", "auto"])


def draw_inputs(batch: int, L: int, D_in: int, N: int, *, grad: bool = False) -> list[Tensor]:
    g = torch.Generator().manual_seed(L)
    x_hat, delta, A, B, C = (
        torch.randn(*s, generator=g, dtype=torch.float64)
        for s in ((batch, L, D_in), (batch, L, D_in), (D_in, N), (batch, L, N), (batch, L, N))
    )
    return [v.requires_grad_(grad) for v in (x_hat, delta.exp(), -A.exp(), B, C)]


@FORMS
def test_without_decay_and_with_unit_steps_it_is_the_linear_scan(form) -> None:
    """A = 0 and Δ = 1 give Ā = 1 and B̄ = B: Eq. 3 becomes Eq. 4."""
    x_hat, delta, A, B, C = draw_inputs(2, 7, 3, 4)
    y_hat = selective_scan(x_hat, torch.ones_like(delta), torch.zeros_like(A), B, C, form=form)
    torch.testing.assert_close(y_hat, scan_loop(x_hat, B, C))


@FORMS
def test_a_large_step_forgets_all_but_the_present(form) -> None:
    """Δ A = -1000: Ā is 0, and ŷ_t = Δ_t x̂_t (B_t · C_t)."""
    x_hat, delta, A, B, C = draw_inputs(2, 7, 3, 4)
    delta, A = torch.full_like(delta, 1000.0), torch.full_like(A, -1.0)
    y_hat = selective_scan(x_hat, delta, A, B, C, form=form)
    torch.testing.assert_close(y_hat, delta * x_hat * (B * C).sum(dim=-1, keepdim=True))


@FORMS
def test_one_channel_decays_as_a_geometric_series(form) -> None:
    """x̂ = B = C = Δ = 1 and A = -log 2: h_t = 1 + 1/2 + 1/4 + ..."""
    ones = torch.ones(1, 5, 1, dtype=torch.float64)
    A = torch.full((1, 1), -math.log(2), dtype=torch.float64)
    y_hat = selective_scan(ones, ones, A, ones, ones, form=form)
    torch.testing.assert_close(y_hat[0, :, 0], torch.tensor([1, 1.5, 1.75, 1.875, 1.9375], dtype=torch.float64))


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (1, 1, 3, 2), (3, 5, 2, 1), (2, 4, 1, 3)])
@pytest.mark.parametrize("rows", [1, 2])
def test_gradients_are_derivatives(shape, rows) -> None:
    """The backward pass is written by hand; finite differences are the judge."""
    assert gradcheck(lambda *v: selective_scan_torch(*v, rows=rows), draw_inputs(*shape, grad=True))


def test_it_takes_views_and_any_number_of_batch_axes() -> None:
    x_hat, delta, A, B, C = draw_inputs(6, 5, 3, 2)
    together = selective_scan_loop(x_hat, delta, A, B, C)
    folded = selective_scan_torch(*(v if v is A else v.unflatten(0, (2, 3)) for v in (x_hat, delta, A, B, C)))
    backwards = selective_scan_torch(*(v if v is A else v.flip(0)[::2] for v in (x_hat, delta, A, B, C)))
    torch.testing.assert_close(folded.flatten(0, 1), together)
    torch.testing.assert_close(backwards, together.flip(0)[::2])


@pytest.mark.parametrize(
    ("asked", "who"),
    [
        ("auto", "recallscope's C kernel"),
        ("torch", "recallscope's torch form"),
        ("loop", "the printed recurrence"),
    ],
)
def test_who_computes_is_said_once_and_the_environment_may_choose(caplog, monkeypatch, asked, who) -> None:
    _say_once.cache_clear()
    monkeypatch.setenv("RECALLSCOPE_SCAN", asked)
    inputs = draw_inputs(1, 3, 2, 2)
    with caplog.at_level(logging.INFO, logger="recallscope"):
        for _ in range(3):
            selective_scan(*inputs)
    assert [record.message for record in caplog.records] == [f"selective scan: {who}"]


def test_without_a_compiler_torch_computes(caplog, monkeypatch) -> None:
    _say_once.cache_clear()
    monkeypatch.setattr(sys.modules["recallscope.ops.selective_scan"], "library", lambda: None)
    with caplog.at_level(logging.INFO, logger="recallscope"):
        selective_scan(*draw_inputs(1, 3, 2, 2))
    assert [record.message for record in caplog.records] == ["selective scan: recallscope's torch form"]


def test_a_form_the_environment_made_up_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("RECALLSCOPE_SCAN", "fast")
    with pytest.raises(ValueError, match=r"RECALLSCOPE_SCAN='fast' is none of auto, loop, torch, compiled"):
        selective_scan(*draw_inputs(1, 3, 2, 2))


def test_the_cuda_kernel_is_not_asked_on_a_cpu() -> None:
    x_hat, *_ = draw_inputs(1, 3, 2, 2)
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
    inputs = [v.float() for v in draw_inputs(6, 5, 3, 2)]
    torch.testing.assert_close(_kernel_scan(*inputs), selective_scan_loop(*inputs))
