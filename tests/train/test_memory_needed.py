"""What does not fit is said in a sentence with numbers, before it is tried."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from recallscope.architectures import ram
from recallscope.architectures.mamba import LinearMambaSpec, MambaSpec
from recallscope.architectures.model import build_model
from recallscope.architectures.ram import NotEnoughMemoryError, machine_bytes, weight_bytes
from recallscope.faults import explain
from recallscope.specs import RunSpec, TrainSpec
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.train.loop import WEIGHT_COPIES, memory_of_training, train_run
from recallscope.train.optimizer import FlatWeights
from recallscope.train.weights import read_weights, write_weights

TASK = MQARSpec(vocab_size=32, num_facts=4)


@pytest.mark.parametrize("spec", [LinearMambaSpec(embed_dim=8, state_dim=4), MambaSpec(embed_dim=8, state_dim=4)])
def test_weights_are_counted_without_building_the_model(spec):
    model = build_model(spec, 32, torch.Generator().manual_seed(0))
    held = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    assert weight_bytes(spec, 32) == held
    assert weight_bytes(spec, 10**9) > 8 * 4 * 10**9


def test_the_copies_of_the_weights_are_those_the_optimiser_keeps():
    model = build_model(LinearMambaSpec(embed_dim=8, state_dim=4), 32, torch.Generator().manual_seed(0))
    flat = FlatWeights(model, TrainSpec())
    of_one = [part for opt in flat.optimizers for part in (opt.weights, opt.mean, opt.square, opt._scratch)]
    copies = [*of_one, *flat.grads, *flat.snapshot()]
    total = sum(vector.numel() for vector in copies)
    assert total == WEIGHT_COPIES * sum(parameter.numel() for parameter in model.parameters())


def test_a_run_that_no_machine_holds_is_refused_with_numbers(run):
    spec = RunSpec(task=MQARSpec(vocab_size=10**9, num_facts=4), model=LinearMambaSpec(embed_dim=10**4, state_dim=4))
    with pytest.raises(NotEnoughMemoryError, match=r"at least 240,0.* GB, and there are .* GB here.*smaller"):
        train_run(spec)
    sizes = ["--vocab-size", 10**9, "--embed-dim", 4096, "--num-facts", 4, "--state-dim", 4]
    code, _, err = run("train", *sizes)
    assert code == 2
    assert "needs at least" in err
    large = RunSpec(task=TASK, model=LinearMambaSpec(embed_dim=8, state_dim=4), train=TrainSpec(batch_size=10**9))
    assert memory_of_training(large) > 10**9


def test_a_container_has_what_its_group_allows(tmp_path, monkeypatch):
    (tmp_path / "limit").write_text("1000000\n")
    (tmp_path / "none").write_text("max\n")
    monkeypatch.setattr(ram, "CGROUP_LIMITS", (str(tmp_path / "none"),))
    assert machine_bytes() > 10**6
    monkeypatch.setattr(ram, "CGROUP_LIMITS", (str(tmp_path / "limit"), str(tmp_path / "missing")))
    assert machine_bytes() == 10**6
    with pytest.raises(NotEnoughMemoryError):
        train_run(RunSpec(task=TASK, model=LinearMambaSpec(embed_dim=1000, state_dim=400)))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4 bytes."),
        RuntimeError("CUDA out of memory. Tried to allocate 20 GiB"),
        MemoryError("Unable to allocate 1.2 TiB"),
    ],
)
def test_memory_that_runs_out_is_no_internal_error(error):
    text, code, _ = explain(error)
    assert code == 2
    assert text.startswith("not enough memory")
    assert "GB" in text
    assert explain(RuntimeError("something else"))[1] == 1
    assert explain(RecursionError("maximum recursion depth exceeded"))[1] == 2


def rewritten(path, tensors=None, **header):
    with safe_open(path, framework="pt") as file:
        before = file.metadata()
    save_file(tensors or load_file(path), path, metadata=before | header)


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "weights.safetensors"
    spec = LinearMambaSpec(embed_dim=8, state_dim=4)
    write_weights(path, build_model(spec, 32, torch.Generator().manual_seed(0)), TASK)
    return path


LARGE = {"embed_dim": 2**20, "state_dim": 4, "expand": 2**20}  # more numbers than an address has


@pytest.mark.parametrize(
    ("model", "vocab_size", "message"),
    [
        ({}, 10**8, r"E is of shape \(8, 100000000\) by the header, and \(8, 32\) in the file"),
        (LARGE | {"kind": "linear_mamba"}, 32, "disagree"),
        (LARGE | {"kind": "mlstm"}, 32, "cannot be built"),
        ({"kind": "routed_memory", "num_memories": 10**9}, 32, "disagree"),
        ({"kind": "hybrid", "layers": "gla,num_layers=1000000000"}, 32, "every word is one layer"),
    ],
)
def test_no_header_gets_memory_that_its_tensors_do_not_fill(weights, model, vocab_size, message):
    fields = {"kind": "linear_mamba", "embed_dim": 8, "state_dim": 4} | model
    rewritten(weights, task=MQARSpec(vocab_size=vocab_size, num_facts=4).canonical_json(), model=json.dumps(fields))
    with pytest.raises(ValueError, match=message):
        read_weights(weights)


def test_a_header_nested_without_end_is_explained(weights):
    rewritten(weights, task="[" * 100_000)
    with pytest.raises(ValueError, match="cannot build"):
        read_weights(weights)


def test_a_shape_that_torch_cannot_take_is_explained(tmp_path):
    header = json.dumps({"E": {"dtype": "F32", "shape": [2**63, 0], "data_offsets": [0, 0]}}).encode()
    (tmp_path / "w.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(ValueError, match="is not a safetensors file"):
        read_weights(tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("spoilt", "message"),
    [
        (lambda tensor: tensor.to(torch.int32), "int32"),
        (lambda tensor: tensor.to(torch.float8_e5m2), "float8_e5m2"),  # means nothing without its scales
        (lambda tensor: tensor * torch.nan, "of E are NaN"),
        (lambda tensor: tensor * torch.inf, "infinite"),
    ],
)
def test_weights_that_are_none_are_refused(weights, spoilt, message):
    tensors = load_file(weights)
    rewritten(weights, tensors | {"E": spoilt(tensors["E"])})
    with pytest.raises(ValueError, match=message):
        read_weights(weights)
