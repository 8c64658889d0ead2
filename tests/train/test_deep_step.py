"""A training step of deep and of many-headed models against the printed algorithm, cross-entropy and autograd.

`model(tokens)` goes through `trace`, line by line as printed; `add_gradients` goes through fused weights and one scan.
"""

import importlib

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from closeness import assert_agree, assert_near
from recallscope.architectures import model as model_module
from recallscope.architectures.mamba import LinearMambaSpec, MultiHeadSpec
from recallscope.architectures.model import build_model
from recallscope.ops.compiled import library
from recallscope.specs import parse_task
from recallscope.tasks.associative_recall import ARSpec, MQARSpec
from recallscope.tasks.drawing import sample_batch

module = importlib.import_module("recallscope.ops.table_scan")
PATTERNS = ("MHA", "MQA", "MKA", "MVA")
KERNELS = [True, False] if library() is not None else [False]


def compare(task, spec, batch_size, *, kernel, dtype=torch.float64, at_once=2**14):
    """Loss and every gradient."""
    g = torch.Generator().manual_seed(0)
    model = build_model(spec, task.vocab_size, g, dtype=dtype)
    with torch.no_grad():
        model.E.mul_(0.3)  # outputs grow with a power of E: keep the softmax alive
    batch = sample_batch(task, batch_size, g)

    def taken(loss):
        found = {"loss": loss.detach(), **{name: p.grad.clone() for name, p in model.named_parameters()}}
        for p in model.parameters():
            p.grad.zero_()
        return found

    def textbook():
        logits = model(batch.tokens).flatten(0, 1)
        loss = cross_entropy(logits, batch.targets.flatten(), ignore_index=-100, label_smoothing=0.1)
        loss.backward()
        return taken(loss)

    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_module, "TOKENS_AT_ONCE", at_once)
        if not kernel:
            patch.setattr(module, "_use_kernel", lambda table: False)
        ours = taken(model.add_gradients(batch, 0.1))
    assert_agree(ours, textbook, model.parameters())


def task_of(kind, N_f, vocab):
    return parse_task(
        {"kind": kind, "vocab_size": vocab, "num_facts": N_f, "key_repeats": 2 if kind == "repeated" else 1}
    )


tasks = st.builds(
    task_of,
    kind=st.sampled_from(["ar", "mqar", "repeated"]),
    N_f=st.integers(1, 5),
    vocab=st.sampled_from([14, 40, 400]),
)


@pytest.mark.parametrize("kernel", KERNELS)
@given(
    task=tasks, D=st.integers(1, 6), N=st.integers(1, 6), expand=st.integers(1, 3), width=st.integers(1, 4),
    layers=st.integers(1, 4), residual=st.booleans(), batch_size=st.integers(1, 4),
)  # fmt: skip
@settings(max_examples=40)
def test_step_equals_autograd_at_every_position(kernel, task, D, N, expand, width, layers, residual, batch_size):
    """Tables over the vocabulary (V=14, 40) and over the batch's tokens (V=400)."""
    spec = LinearMambaSpec(
        embed_dim=D, state_dim=N, expand=expand, conv_width=width, num_layers=layers, residual=residual
    )
    compare(task, spec, batch_size, kernel=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("pattern", PATTERNS)
@given(
    task=tasks, P=st.integers(1, 4), N=st.integers(1, 4), M=st.integers(1, 3), expand=st.integers(1, 2),
    width=st.integers(1, 4), batch_size=st.integers(1, 4),
)  # fmt: skip
@settings(max_examples=25)
def test_step_of_many_heads_equals_autograd(kernel, pattern, task, P, N, M, expand, width, batch_size):
    spec = MultiHeadSpec(
        embed_dim=P * M, state_dim=N, num_heads=M, head_pattern=pattern, expand=expand, conv_width=width
    )
    compare(task, spec, batch_size, kernel=kernel)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("residual", [False, True])
def test_one_layer_with_long_sequences(kernel, residual):
    """L = 260."""
    compare(
        MQARSpec(vocab_size=140, num_facts=65),
        LinearMambaSpec(embed_dim=5, state_dim=3, residual=residual),
        2,
        kernel=kernel,
    )


@pytest.mark.parametrize("at_once", [1, 50, 10**6])
@pytest.mark.parametrize("layers", [2, 3])
def test_the_loss_does_not_depend_on_how_the_batch_is_cut(layers, at_once):
    """L = 20, batch of 5: one sequence at a time, two with one left over, all."""
    spec = LinearMambaSpec(embed_dim=4, state_dim=3, num_layers=layers, residual=True)
    compare(MQARSpec(vocab_size=30, num_facts=5), spec, 5, kernel=True, at_once=at_once)


@pytest.mark.parametrize(
    ("task", "spec"),
    [
        (MQARSpec(vocab_size=512, num_facts=16), LinearMambaSpec(embed_dim=32, state_dim=16)),
        (
            MQARSpec(vocab_size=512, num_facts=80),
            LinearMambaSpec(embed_dim=64, state_dim=6, num_layers=2, residual=True),
        ),
        (ARSpec(vocab_size=512, num_facts=80), LinearMambaSpec(embed_dim=64, state_dim=3, num_layers=4, residual=True)),
        *(
            (
                MQARSpec(vocab_size=512, num_facts=16),
                MultiHeadSpec(embed_dim=60, state_dim=4, num_heads=3, head_pattern=pattern),
            )
            for pattern in PATTERNS
        ),
    ],
)
def test_published_sizes_in_single_precision(task, spec):
    compare(task, spec, 4, kernel=True, dtype=torch.float32)


def test_gradients_are_added_and_repeat_bit_for_bit():
    task, g = MQARSpec(vocab_size=40, num_facts=3), torch.Generator().manual_seed(0)
    model = build_model(LinearMambaSpec(embed_dim=4, state_dim=3, num_layers=2, residual=True), 40, g)
    batch, seen = sample_batch(task, 2, g), []
    for _ in range(2):
        for p in model.parameters():
            p.grad = torch.zeros_like(p)
        model.add_gradients(batch, 0.1)
        seen.append([p.grad.clone() for p in model.parameters()])
    assert all(torch.equal(one, two) for one, two in zip(*seen, strict=True))
    model.add_gradients(batch, 0.1)
    for p, once in zip(model.parameters(), seen[0], strict=True):
        assert_near(p.grad, 2 * once)
