"""The hand-written step of the one-layer linear model against autograd through `answer` and cross-entropy."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from recallscope.models import build_model
from recallscope.specs import LinearSpec, TaskSpec
from recallscope.tasks import draw_batch
from recallscope.train.linear_step import can_step, linear_step


def compare(task, spec, batch_size, dtype, rtol, atol):
    g = torch.Generator().manual_seed(0)
    model = build_model(spec, task.vocab_size, g, dtype=dtype)
    batch = draw_batch(task, batch_size, g)
    logits = model(batch.tokens)  # every position, as one would write it first
    loss = cross_entropy(logits.flatten(0, 1), batch.targets.flatten(), ignore_index=-100, label_smoothing=0.1)
    loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    for p in model.parameters():
        p.grad.zero_()
    torch.testing.assert_close(linear_step(model, batch, 0.1), loss.detach(), rtol=rtol, atol=atol)
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, expected[name], rtol=rtol, atol=atol, msg=lambda m, n=name: f"{n}: {m}")


@given(
    kind=st.sampled_from(["ar", "mqar", "repeated"]), N_f=st.integers(1, 5), vocab=st.sampled_from([14, 40, 400]),
    D=st.integers(1, 6), N=st.integers(1, 6), expand=st.integers(1, 3), width=st.integers(1, 4), residual=st.booleans(),
    batch_size=st.integers(1, 4),
)  # fmt: skip
@settings(max_examples=60)
def test_step_equals_autograd(kind, N_f, vocab, D, N, expand, width, residual, batch_size):
    """Both ways to make the table: over the vocabulary (V=14, 40) and over the batch's tokens (V=400)."""
    task = TaskSpec(kind=kind, vocab_size=vocab, num_facts=N_f, key_repeats=2 if kind == "repeated" else 1)
    spec = LinearSpec(embed_dim=D, state_dim=N, expand=expand, conv_width=width, residual=residual)
    compare(task, spec, batch_size, torch.float64, 1e-9, 1e-11)


def test_step_equals_autograd_at_the_published_size_in_single_precision():
    compare(
        TaskSpec(vocab_size=512, num_facts=16),
        LinearSpec(embed_dim=32, state_dim=16),
        32,
        torch.float32,
        1e-4,
        1e-5,
    )


def test_gradients_are_added():
    task = TaskSpec(vocab_size=40, num_facts=3)
    g = torch.Generator().manual_seed(0)
    model = build_model(LinearSpec(embed_dim=4, state_dim=3), 40, g, dtype=torch.float64)
    batch = draw_batch(task, 2, g)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    linear_step(model, batch, 0.1)
    once = [p.grad.clone() for p in model.parameters()]
    linear_step(model, batch, 0.1)
    for p, grad in zip(model.parameters(), once, strict=True):
        torch.testing.assert_close(p.grad, 2 * grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("layers", "able"), [(1, True), (2, False)])
def test_only_one_layer_has_a_step_of_its_own(layers, able):
    model = build_model(LinearSpec(embed_dim=4, state_dim=3, num_layers=layers), 16, torch.Generator())
    assert can_step(model) is able
