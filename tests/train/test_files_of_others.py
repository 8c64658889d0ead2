"""Files of other people: nothing in a weights file, a record or a store makes us import or read code."""

import contextlib
import importlib.abc
import json
import os
import random
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from starlette.testclient import TestClient

from recallscope.architectures.mamba import LinearMambaSpec, MambaSpec
from recallscope.architectures.model import build_model
from recallscope.architectures.user_module import user_module
from recallscope.records import RecordError, RunRecord, read_facts, record_text
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs
from recallscope.runs.upkeep import verify
from recallscope.specs import RunSpec, identity_hash
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.train.weights import read_weights, write_weights
from recallscope.web.server import make_app
from recallscope.web.store_set import StoreSet

TASK = MQARSpec(vocab_size=16, num_facts=2)
CODE = """
import torch
import pathlib
(pathlib.Path(__file__).parent / "ran").touch()
class Model(torch.nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.emb = torch.nn.Embedding(vocab_size, 4)
        self.out = torch.nn.Linear(4, vocab_size)
    def forward(self, tokens):
        return self.out(self.emb(tokens))
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a weights file, and the code that its header names; `ran` appears when that code is run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nets.py").write_text(CODE)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text(CODE)
    (tmp_path / "package" / "nets.py").write_text(CODE)
    model = build_model(user_module("nets.py:Model"), 16, torch.Generator().manual_seed(0))
    write_weights(tmp_path / "weights.safetensors", model, TASK)
    (tmp_path / "ran").unlink()
    for name in [name for name in sys.modules if name.startswith("_recallscope_file_nets_")]:
        del sys.modules[name]
    before = list(sys.path)
    yield tmp_path
    sys.path[:] = before


def ran(folder):
    return (folder / "ran").exists() or (folder / "package" / "ran").exists()


def with_model(folder, **fields):
    """The weights file with a header that says otherwise; None removes a field."""
    path = folder / "weights.safetensors"
    with safe_open(path, framework="pt") as file:
        header, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    model = {name: value for name, value in (json.loads(header["model"]) | fields).items() if value is not None}
    save_file(tensors, path, metadata=header | {"model": json.dumps(model)})


@pytest.mark.parametrize(
    "kind", ["nets.py:Model", "{folder}/nets.py:Model", "package.nets:Model", "this:s", "os:system"]
)
@pytest.mark.parametrize("digest", ["left out", "kept"])
def test_a_weights_file_runs_no_code(folder, run, kind, digest):
    kind = kind.format(folder=folder)
    with_model(folder, kind=kind, **{"digest": None} if digest == "left out" else {})
    with pytest.raises(ValueError, match="digest" if digest == "left out" else "--trust-code") as refusal:
        read_weights("weights.safetensors")
    assert repr(kind) in str(refusal.value)
    for command in ("measure", "inspect"):
        code, _, said = run(command, "weights.safetensors")
        assert (code, said) == (2, f"recallscope: {refusal.value}\n")
    assert not ran(folder)
    assert "this" not in sys.modules


def test_a_header_without_a_digest_is_refused_even_if_code_is_trusted(folder):
    with_model(folder, digest=None)
    with pytest.raises(ValueError, match="digest"):
        read_weights("weights.safetensors", trust_code=True)
    with_model(folder, digest="0" * 16)
    with pytest.raises(ValueError, match="has changed"):
        read_weights("weights.safetensors", trust_code=True)
    assert not ran(folder)


def test_code_that_the_user_names_is_imported(folder, run):
    model, task = read_weights("weights.safetensors", trust_code=True)
    assert task == TASK
    assert read_weights("weights.safetensors", trust_code="nets.py:Model")[0].spec == model.spec
    with pytest.raises(ValueError, match="trust-code"):
        read_weights("weights.safetensors", trust_code="package.nets:Model")
    few = ("--num-sequences", 20, "--out", "out", "--quiet")
    for named in (("weights.safetensors", "--trust-code"), ("nets.py:Model", "--weights", "weights.safetensors")):
        code, _, said = run("measure", *named, *few)
        assert code == 0, said
    assert ran(folder)


@pytest.mark.parametrize("trusted", [False, True])
def test_the_explorer_imports_code_only_if_it_was_started_so(folder, trusted):
    store_set = StoreSet([], [folder / "weights.safetensors"], trust_code=trusted)
    with TestClient(make_app(store_set, frozenset(["here"])), base_url="http://here") as client:
        answer = client.get("/api/pictures", params={"model": "weights:0"})
    assert answer.status_code == (200 if trusted else 400)
    assert ran(folder) is trusted
    if not trusted:
        assert "--trust-code" in answer.json()["error"]


def test_an_explorer_trusts_nothing_that_another_of_the_process_trusts(folder):
    for trusted in (True, False):
        store_set = StoreSet([], [folder / "weights.safetensors"], trust_code=trusted)
        with TestClient(make_app(store_set, frozenset(["here"])), base_url="http://here") as client:
            answer = client.get("/api/pictures", params={"model": "weights:0"})
        assert answer.status_code == (200 if trusted else 400)


def test_a_record_that_names_code_is_read_without_it(folder, run):
    """No module is imported for a record, nor its parent package; no file of code is opened; sys.path stays."""
    spec = RunSpec(task=TASK, model=user_module("package.nets:Model"))
    store, before = RunStore(folder / "store", create=True), list(sys.path)
    kept = RunRecord(run=spec.content_hash(), spec=spec, test_accuracy=0.5, val_accuracy=0.5, test_queries=1,
                     best_step=1, steps=1, seconds=1.0)  # fmt: skip
    store.put(kept)
    for path in (folder / "package").iterdir():
        os.chmod(path, 0)
    path = store.folder(kept.run) / "record.json"
    facts = json.loads(path.read_bytes())
    for part in ("spec", "identity"):
        del facts[part]["model"]["digest"]
    facts["run"] = identity_hash("RunSpec", facts["identity"])
    with pytest.raises(RecordError, match="digest"):
        read_facts(record_text(facts))
    path = store.folder(facts["run"]) / "record.json"
    path.parent.mkdir()
    path.write_bytes(record_text(facts))
    for command in (("verify", "--dry-run"), ("list",)):
        run("store", command[0], store.root, *command[1:])
    run("store", "show", store.root, facts["run"])
    assert not verify(store).clean
    assert not ran(folder)
    assert "package" not in sys.modules
    assert sys.path == before


CODE_NAMES = ["nets.py:Model", "package.nets:Model", "this:s", "antigravity:x", "../nets.py:Model",
              "recallscope.cli.main:main"]  # fmt: skip
KINDS = [*CODE_NAMES, ":", "a:b:c", "nets.py", "evil", "full", "mamba", "multihead", "delta_net",
         "rwkv7", "attention", "mqar"]  # fmt: skip
VALUES = [None, True, -1, 0, 1, 3, 10**9, 10**30, 0.5, 1e308, "", "x", "this:s", [], {}, [[]], {"kind": "this:s"}]
VALUES += ["\x1b[2J", "9" * 5000]


def hostile(luck, fields):
    """A table with some fields replaced, removed or added, at any depth."""
    fields = {
        name: hostile(luck, v) if isinstance(v, dict) and luck.random() < 0.5 else v for name, v in fields.items()
    }
    for _ in range(luck.randrange(3)):
        name = luck.choice([*fields, "kind", "num_layers", "digest", "embed_dim", "model", "__class__", "new"])
        fields[name] = luck.choice(KINDS if name in ("kind", "model") and luck.random() < 0.8 else VALUES)
        if luck.random() < 0.2:
            del fields[name]
    return luck.choice(VALUES) if luck.random() < 0.03 else fields


def hostile_weights(luck, header, tensors, path):
    """A file with a header, tensors or bytes that are not as we write them."""
    parts = {name: json.loads(header[name]) for name in ("model", "task")}
    parts = {name: hostile(luck, part) if luck.random() < 0.6 else part for name, part in parts.items()}
    texts = {name: json.dumps(part) if luck.random() < 0.95 else "{" * 10**5 for name, part in parts.items()}
    if luck.random() < 0.3:
        name = luck.choice(list(tensors))
        spoilt = luck.choice([tensors[name][:1], tensors[name].int(), tensors[name] * torch.nan])
        tensors = {n: t for n, t in tensors.items() if n != name} | {luck.choice([name, "x"]): spoilt.contiguous()}
    save_file(tensors, path, metadata=header | texts if luck.random() < 0.95 else texts)
    data = bytearray(path.read_bytes())
    if luck.random() < 0.3:
        for _ in range(luck.randrange(1, 5)):
            data[luck.randrange(min(len(data), 600))] = luck.randrange(256)
    path.write_bytes(data[: luck.randrange(len(data))] if luck.random() < 0.1 else data)


class NoImports(importlib.abc.MetaPathFinder):
    """Notes every module that is looked for and is not of the package."""

    def __init__(self):
        self.seen = []

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] != "recallscope":
            self.seen.append(name)


@pytest.mark.parametrize("count", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_no_weights_file_or_record_makes_us_import_anything(folder, monkeypatch, run, count):
    luck, hook, store = random.Random(0), NoImports(), RunStore(folder / "store", create=True)
    subjects = []
    for spec in (
        user_module("nets.py:Model"),
        LinearMambaSpec(embed_dim=4, state_dim=2),
        MambaSpec(embed_dim=4, state_dim=2),
    ):
        path = folder / f"{len(subjects)}.safetensors"
        write_weights(path, build_model(spec, 16, torch.Generator().manual_seed(0)), TASK)
        read_weights(path, trust_code=True)  # what our own reading imports has been imported
        with safe_open(path, framework="pt") as file:
            subjects.append((file.metadata(), {name: file.get_tensor(name) for name in file.keys()}))  # noqa: SIM118
    one = RunSpec(task=TASK, model=user_module("nets.py:Model"))
    results = {"test_accuracy": 0.5, "val_accuracy": 0.5, "test_queries": 1, "best_step": 1, "steps": 1, "seconds": 1.0}
    made = RunRecord(spec=one, run=one.content_hash(), **results)
    store.put(made)
    facts = json.loads(record_text(made))
    verify(store)
    run("store", "show", store.root, made.run)
    (folder / "ran").unlink()
    monkeypatch.setattr(sys, "meta_path", [hook, *sys.meta_path])
    read = 0
    for _ in range(count):
        hostile_weights(luck, *luck.choice(subjects), folder / "w.safetensors")
        with contextlib.suppress(ValueError, OSError):  # what commands explain; nothing else is raised
            read_weights(folder / "w.safetensors")
            read += 1
        changed = hostile(luck, facts)
        if isinstance(changed, dict) and isinstance(changed.get("identity"), dict):
            changed["run"] = identity_hash("RunSpec", changed["identity"])  # as whoever means harm would
            place = store.folder(changed["run"]) / "record.json"
            place.parent.mkdir(exist_ok=True)
            place.write_bytes(record_text(changed))
    assert count / 50 < read < count / 2
    verify(store, move=False)
    find_runs(store)
    list(store.records())
    for row in find_runs(store)[:20]:
        assert run("store", "show", store.root, row["run"])[0] in (0, 2)
    assert hook.seen == []
    assert not ran(folder)
