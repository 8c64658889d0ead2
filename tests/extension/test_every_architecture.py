"""Every architecture of the package goes through the commands, as an outsider's does, with no case of its own."""

import json

import pytest

from recallscope.specs import ARCHITECTURES

TASK = ["--vocab-size", 32, "--num-facts", 3]
SIZES = {"embed_dim": 8, "state_dim": 4, "num_heads": 2, "head_pattern": "MHA"}
FEW = ["--batch-size", 16, "--warmup-steps", 0, "--flat-steps", 4, "--decay-steps", 0, "--eval-size", 20]
GRID = """
[task]
kind = "mqar"
vocab_size = 32
num_facts = 3
[model]
kind = "{kind}"
{fields}
[train]
batch_size = 16
warmup_steps = 0
flat_steps = 4
decay_steps = 0
eval_size = 20
[axes]
state_dim = [2, 4]
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ARCHITECTURES.names())
def test_it_is_trained_measured_inspected_and_swept(kind, tmp_path, run):
    known = ARCHITECTURES.find(kind).model_fields
    fields = {name: value for name, value in SIZES.items() if name in known}
    flags = [word for name, value in fields.items() for word in (f"--{name.replace('_', '-')}", value)]

    def ask(*arguments):
        code, out, error = run(*arguments, "--json")
        assert code == 0, error
        return json.loads(out)

    ask("train", "--model", kind, *TASK, *flags, *FEW, "--out", tmp_path / "one")
    measured = ask("measure", tmp_path / "one", "--num-sequences", 20)
    assert measured["accuracy"]["queries"] == 60
    looked = ask("inspect", tmp_path / "one", "--num-sequences", 20, "--out", tmp_path / "look")
    assert len(looked["behaviour"]["recall_by_place"]) == 3
    del fields["state_dim"]
    text = "\n".join(f"{name} = {json.dumps(value)}" for name, value in fields.items())
    (tmp_path / "grid.toml").write_text(GRID.format(kind=kind, fields=text))
    assert ask("sweep", tmp_path / "grid.toml", "--store", tmp_path / "store", "--workers", 0)["done"] == 2
    rows = ask("store", "list", tmp_path / "store", "--where", f"model={kind}")["runs"]
    assert sorted(row["state_dim"] for row in rows) == [2, 4]
