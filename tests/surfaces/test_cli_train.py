"""`train`, `design` and `evaluate` as a user meets them."""

import json

import pytest

from recallscope.records import parse_record

QUICK = ["--vocab-size", "32", "--num-facts", "3", "--embed-dim", "8", "--state-dim", "4"]
SHORT = ["--batch-size", "8", "--warmup-steps", "5", "--flat-steps", "10", "--decay-steps", "10", "--eval-size", "20"]


@pytest.mark.parametrize(
    "model",
    [
        ["--model", "linear"],
        ["--model", "linear", "--num-layers", "2"],
        ["--model", "full", "--conv-width", "3", "--gate", "no"],
        ["--model", "multihead", "--num-heads", "2", "--head-pattern", "MHA"],
        ["--model", "full2", "--num-heads", "2"],
    ],
    ids=lambda words: "-".join(w.strip("-") for w in words),
)
def test_train_json_is_one_object(model, run):
    code, out, _ = run("train", *QUICK, *SHORT, *model, "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer.keys() == {"run", "spec", "test_accuracy", "val_accuracy", "steps", "seconds"}
    assert answer["steps"] == 25
    assert answer["spec"]["model"]["kind"] == model[1]
    assert 0 <= answer["test_accuracy"] <= 1


def test_train_keeps_what_evaluate_reads(run, tmp_path):
    out_dir = tmp_path / "one"
    code, out, _ = run("train", *QUICK, *SHORT, "--out", out_dir)
    assert code == 0
    assert "test accuracy" in out
    record = parse_record((out_dir / "record.json").read_bytes())
    assert not (out_dir / "checkpoint.safetensors").exists()
    code, out, _ = run("evaluate", out_dir, "--num-examples", 50, "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer["task"] == record.spec.task.model_dump(mode="json")
    assert answer["queries"] == 150
    code, out, _ = run("evaluate", out_dir / "weights.safetensors", "--num-facts", 5, "--num-examples", 10, "--json")
    assert json.loads(out)["task"]["length"] == 20


def test_presets_take_changes(run):
    words = ["--preset", "dn-linear", "--vocab-size", 32, "--num-facts", 2, "--embed-dim", 4, "--state-dim", 2, *SHORT]
    answer = json.loads(run("train", *words, "--json")[1])
    assert answer["spec"]["task"]["length"] == 8
    assert answer["spec"]["train"]["batch_size"] == 8
    assert answer["spec"]["train"]["clip_norm"] == 1.5


@pytest.mark.parametrize(
    "circuit", ["compressive", "selective-soft", "selective-hard", "depth", "MVA", "MQA", "MKA", "MHA"]
)
def test_design_writes_weights_that_evaluate_reads(circuit, run, tmp_path):
    path = tmp_path / "circuit.safetensors"
    words = ["--vocab-size", 32, "--num-facts", 3, "--embed-dim", 16, "--state-dim", 4, "--num-examples", 40]
    code, out, _ = run("design", "--circuit", circuit, *words, "--out", path, "--json")
    assert code == 0
    answer = json.loads(out)
    assert 0 < answer["accuracy"] <= 1
    code, out, _ = run("evaluate", path, "--num-examples", 40, "--json")
    assert code == 0
    assert json.loads(out)["model"] == answer["model"]


def test_the_ideal_circuit_is_perfect_without_key_filler(run):
    words = ["--vocab-size", 32, "--num-facts", 3, "--filler", "zero", "--num-examples", 100, "--json"]
    answer = json.loads(run("design", "--circuit", "ideal", *words)[1])
    assert answer["accuracy"] == 1
    assert answer["model"]["embed_dim"] == answer["model"]["state_dim"] == 32


def test_design_agrees_with_its_law(run):
    words = ["--vocab-size", 128, "--num-facts", 4, "--embed-dim", 24, "--state-dim", 12, "--draws", 40]
    answer = json.loads(run("design", *words, "--num-examples", 4000, "--json")[1])
    assert abs(answer["accuracy"] - answer["laws"]["designed-improved"]) < 0.02 + 4 * answer["standard_error"]


def test_bad_input_is_answered_in_one_paragraph(run, tmp_path):
    def refused(*words, says):
        code, out, err = run(*words)
        assert (code, out) == (2, ""), (words, code, err)
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
    refused("design", *QUICK, "--draws", 0, says="draws=0")
    refused("design", "--circuit", "MHA", *QUICK, "--num-heads", 3, says="num_heads=3")
    refused("evaluate", tmp_path / "nothing.safetensors", says="no such weights file")
    (tmp_path / "text.safetensors").write_text("not weights at all")
    refused("evaluate", tmp_path / "text.safetensors", says="not a safetensors file")
