"""The written-out training step of full Mamba against autograd: loss and every gradient, for every switch."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from closeness import assert_agree, assert_near, moved_off
from recallscope.architectures.mamba import MambaSpec
from recallscope.architectures.mamba_model import Mamba
from recallscope.architectures.mamba_step import full_step
from recallscope.architectures.model import RecallModel, build_model
from recallscope.presets import PRESETS
from recallscope.tasks.associative_recall import ARSpec, MQARSpec, RepeatedSpec
from recallscope.tasks.batch import Batch
from recallscope.tasks.drawing import sample_batch

SMOOTHING = 0.1
D_N = {"embed_dim": 20, "state_dim": 3}
SPECS = {
    "full": MambaSpec(embed_dim=12, state_dim=5),
    "more than a block of channels": MambaSpec(embed_dim=33, state_dim=17),
    "no residual, no conv bias": MambaSpec(**D_N, residual=False, conv_bias=False),
    "no gate, no activation": MambaSpec(**D_N, gate=False, activation="none", conv_width=3),
    "full-rank delta, one tap": MambaSpec(**D_N, delta_rank="full", conv_width=1),
    "delta on the write alone": MambaSpec(**D_N, transition="write"),
    "identity with skip and norm": MambaSpec(**D_N, transition="identity"),
    **{name: MambaSpec(**(PRESETS[name].model | D_N)) for name in PRESETS if name.startswith("minimality")},
}
TASKS = {
    "mqar": MQARSpec(vocab_size=64, num_facts=4),
    "ar": ARSpec(vocab_size=64, num_facts=4),
    "repeated": RepeatedSpec(vocab_size=64, num_facts=3, key_repeats=2),
}


def draw_model(spec: MambaSpec, dtype: torch.dtype = torch.float64) -> Mamba:
    """Weights that start at constants (norms, A, skip) are moved off them; gradients exist, as in training."""
    g = torch.Generator().manual_seed(3)
    model = build_model(spec, 64, g, dtype=dtype)
    moved_off(model, g, 0.1)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return model


def textbook_loss(model: RecallModel, batch: Batch) -> Tensor:
    """Logits after every token, most of them ignored."""
    logits = model(batch.tokens).flatten(0, 1)
    return cross_entropy(logits, batch.targets.flatten(), label_smoothing=SMOOTHING, ignore_index=-100)


def taken_gradients(model: RecallModel) -> dict[str, Tensor]:
    """The gradients, which are then forgotten."""
    taken = {}
    for name, parameter in model.named_parameters():
        taken[name] = parameter.grad.clone()
        parameter.grad.zero_()
    return taken


def assert_same_step(model: Mamba, batch: Batch) -> None:
    def textbook() -> dict[str, Tensor]:
        loss = textbook_loss(model, batch)
        loss.backward()
        return {"loss": loss.detach(), **taken_gradients(model)}

    loss = full_step(model, batch, SMOOTHING)
    assert_agree({"loss": loss, **taken_gradients(model)}, textbook, model.parameters())


@pytest.mark.parametrize("rows", [2, 9])
@pytest.mark.parametrize("name", SPECS)
def test_the_step_is_the_textbooks(name: str, rows: int) -> None:
    """A batch with fewer tokens than the vocabulary (projections per token), and one with more (per vocabulary)."""
    batch = sample_batch(TASKS["mqar"], rows, torch.Generator().manual_seed(rows))
    assert_same_step(draw_model(SPECS[name]), batch)


@pytest.mark.parametrize("task", TASKS)
def test_it_holds_for_every_task(task: str) -> None:
    batch = sample_batch(TASKS[task], 12, torch.Generator().manual_seed(0))
    assert_same_step(draw_model(SPECS["full"]), batch)


def test_it_holds_in_float32_at_the_size_of_the_grid() -> None:
    """(D, N) = (32, 16), batch 32, V = 512, L = 64."""
    g = torch.Generator().manual_seed(0)
    model = build_model(MambaSpec(embed_dim=32, state_dim=16), 512, g)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    batch = sample_batch(MQARSpec(vocab_size=512, num_facts=16), 32, g)
    assert_same_step(model, batch)


def test_gradients_are_added_not_written() -> None:
    """Accumulation over several batches is a sum."""
    model = draw_model(SPECS["full"])
    batches = [sample_batch(TASKS["mqar"], 9, torch.Generator().manual_seed(seed)) for seed in (1, 2)]
    apart = []
    for batch in batches:
        full_step(model, batch, SMOOTHING)
        apart.append(taken_gradients(model))
    for batch in batches:
        full_step(model, batch, SMOOTHING)
    for name, total in taken_gradients(model).items():
        assert_near(total, apart[0][name] + apart[1][name])


def test_it_is_taken_where_it_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """One full layer, C kernels at hand; never against the environment's word."""

    def build(spec: MambaSpec, **options: torch.dtype) -> RecallModel:
        return build_model(spec, 64, torch.Generator().manual_seed(0), **options)

    assert build(MambaSpec(**D_N)).has_fast_step
    assert not build(MambaSpec(**D_N, num_layers=2)).has_fast_step
    assert not build(MambaSpec(**D_N), dtype=torch.bfloat16).has_fast_step
    monkeypatch.setenv("RECALLSCOPE_SCAN", "torch")
    assert not build(MambaSpec(**D_N)).has_fast_step


@pytest.mark.parametrize("form", ["auto", "torch"])
def test_the_training_loop_takes_either_way_to_the_same_gradients(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECALLSCOPE_SCAN", form)
    model = draw_model(SPECS["full"])
    batch = sample_batch(TASKS["mqar"], 9, torch.Generator().manual_seed(5))
    loss = model.add_gradients(batch, SMOOTHING)
    ours = taken_gradients(model)
    full_loss = full_step(model, batch, SMOOTHING)
    assert_near(loss, full_loss)
    for name, gradient in taken_gradients(model).items():
        assert_near(ours[name], gradient)
