"""Somebody else's architecture, task, law and plain torch module go through every command, with no edit in the package.

Every step is a command line in a folder of the user's own, as they would type it.
"""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

import commands

HERE = Path(__file__).parent
TASK = ["--vocab-size", "32", "--num-facts", "3"]
TRAIN = ["--batch-size", "16", "--warmup-steps", "5", "--flat-steps", "20", "--decay-steps", "15"]
TRAIN += ["--eval-every", "10", "--eval-size", "40"]
GRID = """
[task]
kind = "{task}"
vocab_size = 32
num_facts = 3
[model]
kind = "{model}"
{fields}
[train]
batch_size = 16
warmup_steps = 5
flat_steps = {steps}
decay_steps = 15
eval_every = 10
eval_size = 40
[axes]
{axes}
seed = [0, 1]
"""
SUBJECTS = {
    "an architecture, a task and a law in files": {
        "plugins": ["my_delta_net.py", "my_noisy_task.py", "my_law.py"],
        "task": "my_noisy_mqar",
        "model": "my_delta_net",
        "flags": ["--embed-dim", "8", "--state-dim", "4", "--noise", "0.1"],
        "fields": "embed_dim = 8",
        "axes": "state_dim = [2, 4]",
        "axis": "state_dim",
    },
    "a plain torch module": {
        "plugins": [],
        "task": "mqar",
        "model": "my_gru.py:Model",
        "flags": ["--model-args", '{"width": 8}'],
        "fields": "",
        "axes": "width = [4, 8]",
        "axis": "width",
    },
}


@pytest.fixture(scope="module", params=SUBJECTS)
def subject(request, tmp_path_factory):
    """A user's folder with the files of one subject, and what to type there."""
    folder = tmp_path_factory.mktemp("mine")
    for file in HERE.glob("my_*.py"):
        shutil.copy(file, folder)
    return {**SUBJECTS[request.param], "folder": folder}


def fast_for(fast):
    """Parametrise with all subjects; in the fast suite with one of them."""
    every = [pytest.param(name, marks=() if name == fast else pytest.mark.slow) for name in SUBJECTS]
    return pytest.mark.parametrize("subject", every, indirect=True)


def recallscope(subject, *arguments):
    """Run a command in the user's folder; what it prints, as JSON if it was asked for."""
    return commands.recallscope(*arguments, **place(subject))


def place(subject):
    """Where and how a command of the user's runs."""
    return {"cwd": subject["folder"], "env": {"RECALLSCOPE_PLUGINS": os.pathsep.join(subject["plugins"])}}


def grid_file(subject, steps):
    path = subject["folder"] / "grid.toml"
    path.write_text(GRID.format(steps=steps, **{name: subject[name] for name in ("task", "model", "fields", "axes")}))
    return path


def test_sample(subject):
    drawn = recallscope(subject, "sample", "--task", subject["task"], *TASK, "--num-sequences", 3, "--json")
    assert len(drawn["tokens"]) == 3


@fast_for("a plain torch module")
def test_train_measure_and_inspect(subject):
    run = ["--task", subject["task"], "--model", subject["model"], *TASK, *subject["flags"], *TRAIN]
    first = recallscope(subject, "train", *run, "--out", "one", "--json")
    again = recallscope(subject, "train", *run, "--json")
    assert (first["run"], first["test_accuracy"]) == (again["run"], again["test_accuracy"])
    trust = ["--trust-code"] if ":" in subject["model"] else []  # no code runs because a file names it
    measured = recallscope(subject, "measure", "one", *trust, "--num-sequences", 50, "--num-facts", 2, "--json")
    assert measured["accuracy"]["queries"] == 100
    scores = recallscope(subject, "inspect", "one", *trust, "--num-sequences", 40, "--out", "look", "--json")
    assert len(scores["behaviour"]["recall_by_place"]) == 3
    assert {"section", "why"} == set(scores["left_out"][0])
    assert (subject["folder"] / "look" / "behaviour.png").stat().st_size > 1000


def is_read_where_the_code_is_not(subject):
    """Without the plugins, and without the user's file: listed, filtered, exported; not moved, not retrained."""
    elsewhere = {"folder": subject["folder"] / "elsewhere", "plugins": []}
    elsewhere["folder"].mkdir()
    shutil.copytree(subject["folder"] / "store", elsewhere["folder"] / "store")
    before = sorted(path.name for path in (elsewhere["folder"] / "store" / "runs").iterdir())
    rows = recallscope(elsewhere, "store", "list", "store", "--where", "test_accuracy>=0", "--json")["runs"]
    assert len(rows) == 4
    recallscope(elsewhere, "store", "verify", "store", "--json")
    assert sorted(path.name for path in (elsewhere["folder"] / "store" / "runs").iterdir()) == before


@fast_for("an architecture, a task and a law in files")
def test_sweep_killed_and_resumed_then_listed_fitted_and_drawn(subject):
    folder = subject["folder"]
    grid_file(subject, steps=150)
    sweep = ("sweep", "grid.toml", "--store", "store", "--workers", "2", "--json")
    begun = commands.Command(*sweep, **place(subject))
    deadline = time.monotonic() + 90
    while not list((folder / "store").glob("runs/*/checkpoint.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.05)
    begun.kill()
    begun.wait()
    outcome = recallscope(subject, *sweep)
    assert outcome["done"] + outcome["skipped"] == 4
    assert recallscope(subject, *sweep)["done"] == 0

    rows = recallscope(subject, "store", "list", "store", "--where", f"model={subject['model']}", "--json")["runs"]
    assert len(rows) == 4
    assert len({row[subject["axis"]] for row in rows}) == 2
    recallscope(subject, "store", "export", "store", "runs.csv")
    assert subject["axis"] in (folder / "runs.csv").read_text().splitlines()[0].split(",")

    fitted = recallscope(subject, "fit", "store", "--json")["experiments"]
    assert sum(sum(sum(row) if isinstance(row, list) else row for row in one["counts"]) for one in fitted) == 4
    recallscope(subject, "plot", "store", "--x", subject["axis"], "--y", "test_accuracy", "--figure", "drawn.png")
    assert (folder / "drawn.png").stat().st_size > 1000
    is_read_where_the_code_is_not(subject)


BAD = {
    "import fails": ("my_bad.py:Model", "import nothing_of_that_name", "nothing_of_that_name"),
    "no such class": ("my_bad.py:Other", "", "no 'Other'"),
    "not a module": (
        "my_bad.py:Model",
        "class Model:\n    def __init__(self, vocab_size): ...",
        "not a torch.nn.Module",
    ),
    "no parameters": (
        "my_bad.py:Model",
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self, vocab_size):\n        super().__init__()",
        "no parameters",
    ),
    "other arguments": (
        "my_bad.py:Model",
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self, size): ...",
        "takes (size)",
    ),
    "an object": ("my_bad.py:model", "import torch\nmodel = torch.nn.Linear(3, 3)", "is a Linear, not a class"),
    "another vocabulary": (
        "my_bad.py:Model",
        "import torch\nclass Model(torch.nn.Embedding):\n    def __init__(self, tokens=20):\n"
        "        super().__init__(50, tokens)",
        "returned (2, 12, 20), not logits of shape (2, 12, 32)",
    ),
    "wrong shape": (
        "my_bad.py:Model",
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self, vocab_size):\n        super().__init__()\n"
        "        self.e = torch.nn.Embedding(vocab_size, 5)\n    def forward(self, t): return self.e(t)",
        "not logits of shape (2, 12, 32)",
    ),
    "not a number": (
        "my_bad.py:Model",
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self, vocab_size):\n        super().__init__()\n"
        "        self.e = torch.nn.Embedding(vocab_size, vocab_size)\n    def forward(self, t): return self.e(t) / 0",
        "NaN",
    ),
    "forward fails": (
        "my_bad.py:Model",
        "import torch\nclass Model(torch.nn.Module):\n    def __init__(self, vocab_size):\n        super().__init__()\n"
        "        self.e = torch.nn.Linear(3, 3)\n    def forward(self, t): return self.e(t)",
        "failed",
    ),
    "a tuple": (
        "my_bad.py:Model",
        "import torch\nclass Model(torch.nn.Embedding):\n    def __init__(self, vocab_size):\n"
        "        super().__init__(vocab_size, vocab_size)\n    def forward(self, t): return super().forward(t), None",
        "returned a tuple: return the logits alone",
    ),
    "fails in evaluation": (
        "my_bad.py:Model",
        "import torch\nclass Model(torch.nn.Embedding):\n    def __init__(self, vocab_size):\n"
        "        super().__init__(vocab_size, vocab_size)\n    def forward(self, t):\n"
        "        return super().forward(t) if self.training else exit(3)",
        "in evaluation, tokens of shape (2, 12), failed: SystemExit: 3",
    ),
    "fails later": (
        "my_bad.py:Model",
        "import torch\nclass Model(torch.nn.Embedding):\n    def __init__(self, vocab_size):\n"
        "        super().__init__(vocab_size, vocab_size)\n    def forward(self, t):\n"
        "        return super().forward(t) if len(t) < 40 else exit(3)",
        "in evaluation, tokens of shape (40, 12), failed: SystemExit: 3",
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_a_module_that_cannot_be_trained_is_told_why(fault, tmp_path, monkeypatch, run):
    name, text, message = BAD[fault]
    (tmp_path / "my_bad.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    code, out, error = run("train", "--model", name, *TASK, *TRAIN, "--out", "one")
    assert (code, out) == (2, "")
    assert message in error
    assert not (tmp_path / "one" / "record.json").exists()


def test_what_a_module_prints_is_not_in_the_json(tmp_path, monkeypatch, run):
    shutil.copy(HERE / "my_odd_net.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    code, out, error = run("train", "--model", "my_odd_net.py:Model", *TASK, *TRAIN, "--json")
    assert (code, json.loads(out)["spec"]["model"]["kind"]) == (0, "my_odd_net.py:Model")
    assert {"made", "called"} <= set(error.splitlines())


def test_a_source_file_that_changed_under_a_checkpoint_is_refused_and_nothing_lost(tmp_path, monkeypatch, run):
    shutil.copy(HERE / "my_gru.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    arguments = ["train", "--model", "my_gru.py:Model", "--model-args", '{"width": 4}', *TASK, *TRAIN, "--out", "one"]
    assert run(*arguments)[0] == 0
    weights = (tmp_path / "one" / "weights.safetensors").read_bytes()
    with open(tmp_path / "my_gru.py", "a") as file:
        file.write("# another model now\n")
    for trusted in (["measure", "one", "--trust-code"], ["measure", "my_gru.py:Model", "--weights", "one"]):
        code, _, error = run(*trusted)
        assert code == 2
        assert "has changed since" in error
    assert (tmp_path / "one" / "weights.safetensors").read_bytes() == weights


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "nowhere.py:Model"], "there is no file nowhere.py"),
        (["--model", "no_such_module:Model"], "there is no module 'no_such_module'"),
        (["--model", "lineer"], "Did you mean linear"),
        (["--model", "my_gru.py"], "Write my_gru.py:MyModel"),
        (["--model", "my_gru.py:Model", "--model-args", "{width: 4}"], "is not JSON"),
        (["--model", "my_gru.py:Model", "--model-args", "[4]"], "is a list"),
        (["--model", "my_gru.py:Model", "--model-args", '{"vocab_size": 4}'], "given by the task"),
        (["--model", "my_gru.py:Model", "--embedding-std", "0.5"], "embedding_std=0.5 cannot be applied"),
    ],
)
def test_wrong_names_and_arguments_are_explained(arguments, message, tmp_path, monkeypatch, run):
    shutil.copy(HERE / "my_gru.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    code, _, error = run("train", *arguments, *TASK, *TRAIN)
    assert code == 2
    assert message in error
