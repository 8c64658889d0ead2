"""`train`, `design` and `measure WEIGHTS` as a user meets them."""

import json
import re
import signal
import time
from pathlib import Path

import pytest
from safetensors import safe_open
from safetensors.torch import save

from commands import Command
from recallscope.circuits.circuit import CIRCUITS
from recallscope.records import parse_record
from recallscope.runs.store import RunStore
from recallscope.specs import RunSpec
from recallscope.train.loop import train_run

QUICK = ["--vocab-size", "32", "--num-facts", "3", "--embed-dim", "8", "--state-dim", "4"]
SHORT = ["--batch-size", "8", "--warmup-steps", "5", "--flat-steps", "10", "--decay-steps", "10", "--eval-size", "20"]


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "model",
    [
        ["--model", "linear_mamba"],
        ["--model", "linear_mamba", "--num-layers", "2"],
        ["--model", "mamba", "--conv-width", "3", "--gate", "no"],
        ["--model", "multihead", "--num-heads", "2", "--head-pattern", "MHA"],
        ["--model", "mamba2", "--num-heads", "2"],
    ],
    ids=lambda flags: "-".join(w.strip("-") for w in flags),
)
def test_train_json_is_one_object(model, run):
    code, out, _ = run("train", *QUICK, *SHORT, *model, "--json")
    assert code == 0
    answer = json.loads(out)
    results = {"run", "spec", "test_accuracy", "val_accuracy", "steps", "seconds"}
    assert answer.keys() == results | {"top_k", "warning", "explanation", "already_done"}
    assert answer["steps"] == 25
    assert answer["spec"]["model"]["kind"] == model[1]
    assert 0 <= answer["test_accuracy"] <= 1


def test_train_keeps_what_measure_reads(run, tmp_path):
    out_dir = tmp_path / "one"
    code, out, _ = run("train", *QUICK, *SHORT, "--out", out_dir)
    assert code == 0
    assert "test accuracy" in out
    record = parse_record((out_dir / "record.json").read_bytes())
    assert not (out_dir / "checkpoint.safetensors").exists()
    code, out, _ = run("measure", out_dir, "--num-sequences", 50, "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer["task"] == record.spec.task.model_dump(mode="json")
    assert answer["accuracy"]["queries"] == 150
    code, out, _ = run("measure", out_dir / "weights.safetensors", "--num-facts", 5, "--num-sequences", 10, "--json")
    assert json.loads(out)["task"]["length"] == 20


def test_a_finished_run_is_answered_from_its_record_and_another_is_refused(run, tmp_path):
    out_dir = tmp_path / "one"
    first = json.loads(run("train", *QUICK, *SHORT, "--out", out_dir, "--json")[1])
    weights, record = ((out_dir / name).read_bytes() for name in ("weights.safetensors", "record.json"))
    again = json.loads(run("train", *QUICK, *SHORT, "--out", out_dir, "--json")[1])
    assert again == first | {"already_done": True}
    assert "already done" in run("train", *QUICK, *SHORT, "--out", out_dir)[1]
    code, out, err = run("train", *QUICK, *SHORT, "--seed", 1, "--learning-rate", 0.02, "--out", out_dir)
    assert (code, out) == (2, "")
    for message in (
        first["run"][:8],
        "in seed (default there, 1 here)",
        "train.learning_rate",
        "--overwrite",
        "another fol",
    ):
        assert message in err
    assert (out_dir / "weights.safetensors").read_bytes() == weights
    assert (out_dir / "record.json").read_bytes() == record
    code, out, _ = run("train", *QUICK, *SHORT, "--seed", 1, "--out", out_dir, "--overwrite", "--json")
    assert (code, json.loads(out)["already_done"]) == (0, False)
    assert parse_record((out_dir / "record.json").read_bytes()).spec.seed == 1
    (out_dir / "record.json").unlink()
    assert "without a record" in run("train", *QUICK, *SHORT, "--out", out_dir)[2]


def test_a_folder_that_cannot_take_the_run_is_told_before_training(run, tmp_path, monkeypatch):
    monkeypatch.setattr("recallscope.cli.training.train_run", lambda *_, **__: pytest.fail("it was trained"))
    (tmp_path / "file").write_text("text", encoding="utf-8")
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged" / "record.json").write_text("{", encoding="utf-8")
    RunStore(tmp_path / "store", create=True)
    for place, message in {
        tmp_path / "file": "File exists",
        tmp_path / "file" / "below": "Not a directory",
        "/proc/here": "a run cannot be kept in /proc/here",
        tmp_path / "store": "belongs to the store",
        tmp_path / "store" / "runs" / "one": "belongs to the store",
        tmp_path / "damaged": "is damaged",
    }.items():
        code, out, err = run("train", *QUICK, *SHORT, "--out", place)
        assert (code, out) == (2, ""), place
        assert message in err


@pytest.mark.parametrize("fault", ["another format", "another shape", "damaged"])
def test_a_checkpoint_that_cannot_be_resumed_is_set_aside_and_the_run_begins_anew(run, tmp_path, fault):
    whole = json.loads(run("train", *QUICK, *SHORT, "--eval-every", 10, "--out", tmp_path / "whole", "--json")[1])
    spec = RunSpec.model_validate(whole["spec"])
    path = tmp_path / "cut" / "checkpoint.safetensors"
    train_run(spec, checkpoint=path)
    with safe_open(path, framework="pt") as file:
        header, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if fault == "another format":
        path.write_bytes(save(tensors, metadata=header | {"format": "recallscope-checkpoint-0"}))
    elif fault == "another shape":
        path.write_bytes(save(tensors | {"weights.0": tensors["weights.0"][1:].clone()}, metadata=header))
    else:
        path.write_bytes(path.read_bytes()[:500])
    left = path.read_bytes()
    code, out, err = run("train", *QUICK, *SHORT, "--eval-every", 10, "--out", path.parent, "--json")
    assert code == 0, err
    assert "Set aside as checkpoint-set-aside-" in err
    (aside,) = path.parent.glob("checkpoint-set-aside-*")
    assert aside.read_bytes() == left
    assert json.loads(out) | {"seconds": 0} == whole | {"seconds": 0}


def test_the_checkpoint_of_another_run_is_refused_and_only_set_aside_if_asked(run, tmp_path):
    path = tmp_path / "checkpoint.safetensors"
    spec = json.loads(run("train", *QUICK, *SHORT, "--eval-every", 10, "--json")[1])["spec"]
    train_run(RunSpec.model_validate(spec), checkpoint=path)
    left = path.read_bytes()
    code, _, err = run("train", *QUICK, *SHORT, "--seed", 5, "--out", tmp_path)
    assert code == 2
    assert "in seed (default there, 5 here)" in err
    assert "--overwrite" in err
    assert path.read_bytes() == left
    assert run("train", *QUICK, *SHORT, "--seed", 5, "--out", tmp_path, "--overwrite")[0] == 0
    (aside,) = tmp_path.glob("checkpoint-set-aside-*")
    assert aside.read_bytes() == left


@pytest.mark.parametrize(("number", "out"), [(signal.SIGINT, True), (signal.SIGTERM, True), (signal.SIGINT, False)])
def test_a_stopped_run_says_that_the_same_command_resumes(tmp_path, number, out):
    flags = [*QUICK, "--flat-steps", "1000000", "--eval-every", "10", "--eval-size", "10", "--batch-size", "8"]
    process = Command("train", *flags, *(["--out", tmp_path] * out))
    path, deadline = tmp_path / "checkpoint.safetensors", time.monotonic() + 60
    while time.monotonic() < deadline and not (path.exists() if out else _catches(process.pid)):
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "stopped at step" in err
    if out:
        kept = int(re.search(r"is of step (\d+): the same command resumes there", err).group(1))
        with safe_open(path, framework="pt") as file:
            assert json.loads(file.metadata()["facts"])["step"] == kept > 0
        assert {found.name for found in tmp_path.iterdir()} == {path.name}
    else:
        assert "Nothing was kept: with --out DIR" in err


def _catches(pid):
    """Whether a process handles SIGTERM, which only a run under way does."""
    (mask,) = re.findall(r"SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"))
    return bool(int(mask, 16) >> (signal.SIGTERM - 1) & 1)


def test_a_diverged_run_stops_where_it_diverged_says_so_and_exits_with_1(run, tmp_path):
    flags = [*QUICK, *SHORT, "--learning-rate", 1e6, "--flat-steps", 1000, "--out", tmp_path]
    code, out, err = run("train", *flags, "--json")
    answer = json.loads(out)
    assert (code, answer["warning"]) == (1, "diverged")
    assert answer["steps"] < 50
    assert f"this run diverged: at step {answer['steps']}" in err
    record = parse_record((tmp_path / "record.json").read_bytes())
    assert record.flag == "diverged"
    assert record.history[-1].loss is None
    assert run("train", *flags)[0] == 1  # from its record
    code, out, _ = run("measure", tmp_path, "--num-sequences", 50, "--json")  # weights from before
    assert (code, json.loads(out)["accuracy"]["mean"] >= 0) == (0, True)


def test_presets_take_changes(run):
    flags = ["--preset", "dn-linear", "--vocab-size", 32, "--num-facts", 2, "--embed-dim", 4, "--state-dim", 2, *SHORT]
    answer = json.loads(run("train", *flags, "--json")[1])
    assert answer["spec"]["task"]["length"] == 8
    assert answer["spec"]["train"]["batch_size"] == 8
    assert answer["spec"]["train"]["clip_norm"] == 1.5


@pytest.mark.parametrize("circuit", [name for name in CIRCUITS.names() if name != "ideal"])
def test_design_writes_weights_that_measure_reads(circuit, run, tmp_path):
    path = tmp_path / "circuit.safetensors"
    flags = ["--vocab-size", 32, "--num-facts", 3, "--embed-dim", 16, "--state-dim", 4, "--num-sequences", 40]
    code, out, _ = run("design", "--circuit", circuit, *flags, "--output", path, "--json")
    assert code == 0
    answer = json.loads(out)
    assert 0 < answer["accuracy"] <= 1
    code, out, _ = run("measure", path, "--num-sequences", 40, "--json")
    assert code == 0
    assert json.loads(out)["model"] == answer["model"]


def test_the_ideal_circuit_is_perfect_without_key_filler(run):
    flags = ["--vocab-size", 32, "--num-facts", 3, "--filler", "zero", "--num-sequences", 100, "--json"]
    answer = json.loads(run("design", "--circuit", "ideal", *flags)[1])
    assert answer["accuracy"] == 1
    assert answer["model"]["embed_dim"] == answer["model"]["state_dim"] == 32


def test_design_agrees_with_its_law(run):
    flags = ["--vocab-size", 128, "--num-facts", 4, "--embed-dim", 24, "--state-dim", 12, "--num-draws", 40]
    answer = json.loads(run("design", *flags, "--num-sequences", 4000, "--json")[1])
    assert abs(answer["accuracy"] - answer["laws"]["designed-improved"]) < 0.02 + 4 * answer["standard_error"]


def test_bad_input_is_answered_in_one_paragraph(run, tmp_path):
    def refused(*flags, says):
        code, out, err = run(*flags)
        assert (code, out) == (2, ""), (flags, code, err)
        assert "Traceback" not in err
        assert says in err

    refused("train", "--preset", "dn-liner", says="dn-linear")
    refused("train", says="--vocab-size")
    refused("train", *QUICK, *SHORT, "--device", "tpu9", says="device='tpu9'")
    refused("train", *QUICK, *SHORT, "--learning-rate", "inf", says="learning_rate=inf")
    refused("train", *QUICK, *SHORT, "--model", "multihead", says="--num-heads")
    refused("train", *QUICK, *SHORT, "--gate", "no", says="gate")
    refused("train", *QUICK, *SHORT, "--seed", -3, says="seed=-3")
    refused("design", *QUICK[:4], "--embed-dim", 8, "--state-dim", 9, says="state_dim <= 8")
    refused("design", *QUICK[:4], says="--embed-dim")
    refused("design", *QUICK, "--num-draws", 0, says="num_draws=0")
    refused("design", "--circuit", "MHA", *QUICK, "--num-heads", 3, says="num_heads=3")
    refused("measure", tmp_path / "nothing.safetensors", says="no such weights file")
    (tmp_path / "text.safetensors").write_text("not weights at all")
    refused("measure", tmp_path / "text.safetensors", says="not a safetensors file")
