"""Every tensor is made on the device of its inputs: nothing is made where torch's default happens to be.

The default device is `meta`, whose tensors hold no numbers: one that was made without a device meets one that was not,
and torch refuses. So a machine without a GPU finds what would fail on one that has it.
"""

from typing import Any, TypeVar, get_args

import pytest
import torch
from pydantic import ValidationError

from recallscope.architectures.model import RecallModel, build_model
from recallscope.interp.inspection import inspect_model
from recallscope.ops import compiled
from recallscope.specs import ARCHITECTURES, TASKS, RunSpec, Spec, TaskSpec, TrainSpec
from recallscope.tasks.drawing import sample_batch
from recallscope.train.evaluate import evaluate
from recallscope.train.loop import train_run
from recallscope.train.optimizer import FlatWeights

no_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device; torch sees none")
VOCAB = 32
AnySpec = TypeVar("AnySpec", bound=Spec)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, no_gpu])])
def device(request):
    torch.set_default_device("meta")
    yield torch.device(request.param)
    torch.set_default_device(None)


def smallest(kind: type[AnySpec], **fields: Any) -> AnySpec:
    """A spec with a value for each field it misses: a new architecture or task is tested without an entry here."""
    try:
        return kind(**fields)
    except ValidationError as error:
        missing = [str(fault["loc"][0]) for fault in error.errors() if fault["type"] == "missing"]
        if not missing:
            raise
        choices = {name: get_args(kind.model_fields[name].annotation) for name in missing}
        return smallest(kind, **fields, **{name: choice[0] if choice else 4 for name, choice in choices.items()})


def small_task(name: str) -> TaskSpec:
    return smallest(TASKS.find(name), vocab_size=VOCAB, num_facts=4)


def build(name: str, device: torch.device, layers: int = 1) -> RecallModel:
    kind = ARCHITECTURES.find(name)
    deep = {"num_layers": layers} if "num_layers" in kind.model_fields.keys() - {*kind.FOLLOWING} else {}
    return build_model(smallest(kind, **deep), VOCAB, torch.Generator("cpu").manual_seed(0), device=device)


architectures = pytest.mark.parametrize("name", ARCHITECTURES.names())


@architectures
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "torch"])
def test_a_training_step(name, layers, kernels, device, monkeypatch):
    if not kernels:
        monkeypatch.setattr(compiled, "_opened", lambda: (None, "torch (for a test)"))
    model = build(name, device, layers)
    weights = FlatWeights(model, TrainSpec())
    batch = sample_batch(small_task("mqar"), 4, torch.Generator(device).manual_seed(0))
    loss = model.add_gradients(batch, 0.1)
    weights.step(0.01, 1.0)
    assert loss.device.type == device.type
    assert model.add_gradients(batch, 0.1) < loss
    assert all(weight.device.type == device.type and weight.isfinite().all() for weight in model.parameters())
    assert model(batch.tokens).shape == (*batch.tokens.shape, VOCAB)


@architectures
def test_an_evaluation_and_an_inspection(name, device):
    model, task = build(name, device), small_task("mqar")
    assert 0 <= evaluate(model, task, 10, torch.Generator(device).manual_seed(0)).accuracy <= 1
    inspection = inspect_model(model, task, torch.Generator(device).manual_seed(0), num_sequences=4)
    assert 0 <= inspection.to_dict()["behaviour"]["accuracy"] <= 1


@pytest.mark.parametrize("task", TASKS.names())
def test_a_run_of_every_task_with_its_checkpoint(task, device, tmp_path):
    """Three steps and an evaluation of each; then resumed from its checkpoint, which has nothing left to do."""
    train = TrainSpec(batch_size=4, warmup_steps=1, flat_steps=1, decay_steps=1, eval_every=2, eval_size=10)
    run = RunSpec(task=small_task(task), model=smallest(ARCHITECTURES.find("linear_mamba")), train=train, seed=0)
    first, second = (train_run(run, device=device, checkpoint=tmp_path / "checkpoint") for _ in range(2))
    assert first.record.test_accuracy == second.record.test_accuracy
    assert first.record.environment["device"] == str(device)
