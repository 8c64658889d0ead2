"""`measure` and `capacity` as a user meets them."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file, save_model

from recallscope.registry import import_from
from recallscope.tasks.associative_recall import MQARSpec
from recallscope.train.evaluate import evaluate
from recallscope.train.weights import read_weights

GRU = Path(__file__).parents[2] / "examples" / "gru.py"
ODD = Path(__file__).parents[1] / "extension" / "my_odd_net.py"
TASK = ["--vocab-size", "32", "--num-facts", "2"]
SIZES = ["--embed-dim", "4", "--state-dim", "2"]
SHORT = ["--batch-size", "8", "--warmup-steps", "5", "--flat-steps", "10", "--decay-steps", "10", "--eval-size", "50"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    shutil.copy(GRU, tmp_path / "my_gru.py")
    monkeypatch.chdir(tmp_path)
    return "my_gru.py:Model"


def test_a_module_of_ones_own_gets_its_row_and_a_figure(mine, run, tmp_path):
    """The whole way: short runs at four rates, by two recipes, one is measured; a second call trains nothing.

    So few steps teach nothing, and no size, bits or rank is derived from the accuracy.
    """
    arguments = [
        "measure",
        mine,
        *TASK,
        *SHORT,
        "--width",
        12,
        "--out",
        "out",
        "--workers",
        "1",
        "--json",
    ]
    code, out, err = run(*arguments)
    assert code == 0
    assert err.startswith("estimated time: ")
    row = json.loads(out)
    assert row["state_entries"] == 12
    assert row["state_bytes"] == 48
    assert row["parameters"] == sum(p.numel() for p in import_from("my_gru.py").Model(32, 12).parameters())
    assert 0 <= row["accuracy"]["interval"][0] <= row["accuracy"]["mean"] <= row["accuracy"]["interval"][1] <= 1
    assert "of 0.01 (" in row["recipe"]
    assert row["verdict"]["word"] == "did not learn"
    assert "--warmup-steps 20 --flat-steps 40 --decay-steps 40" in row["verdict"]["next_command"]
    assert (row["information"], row["linear"], row["place"], row["place_at_its_state"]) == (None,) * 4
    assert "at chance" in row["verdict"]["sentence"]
    assert Path(row["figure"]).stat().st_size > 5000
    (kept,) = Path("out").glob("*.json")
    assert json.loads(kept.read_text())["runs"] == row["runs"]
    code, again, err = run(*arguments)
    assert json.loads(again) == row
    assert "0 to do" in err
    listed, every = run("store", "list", "out/store")[1], run("store", "list", "out/store", "--trials")[1]
    assert "1 runs\n8 learning-rate trials of measurements are left out" in listed
    assert "9 runs\n" in every


def test_a_wrong_name_is_refused_before_anything_is_trained(mine, run, tmp_path):
    code, out, err = run("measure", "my_gru.py:Modell", *TASK, "--out", "here")
    assert (code, out) == (2, "")
    assert err == "recallscope: my_gru.py has no 'Modell'; modules in it: Model.\n"
    assert not list((tmp_path / "here").rglob("attempts.jsonl"))


def test_weights_are_measured_as_they_are(mine, run):
    model = import_from("my_gru.py").Model(32, 6)
    save_file(model.state_dict(), "plain.safetensors")
    arguments = ["measure", mine, "--model-args", '{"width": 6}', *TASK, "--num-sequences", "40", "--json"]
    code, out, err = run(*arguments, "--weights", "plain.safetensors", "--figure", "there.png")
    assert code == 0, err
    row = json.loads(out)
    assert (row["runs"], row["state_entries"], row["figure"]) == ([], 6, "there.png")
    assert Path("there.svg").exists()
    code, _, err = run(*arguments, "--model-args", '{"width": 7}', "--weights", "plain.safetensors")
    assert code == 2
    assert "does not fit" in err
    model.head.bias.data[0] = torch.nan
    save_file(model.state_dict(), "plain.safetensors")
    code, _, err = run(*arguments, "--weights", "plain.safetensors")
    assert code == 2
    assert "1 of 32 numbers of module.head.bias are NaN" in err


def test_tied_weights_are_saved_once_and_measured(run, tmp_path, monkeypatch):
    shutil.copy(ODD, tmp_path)
    monkeypatch.chdir(tmp_path)
    save_model(import_from("my_odd_net.py").Model(32), "tied.safetensors")
    code, out, err = run("measure", "my_odd_net.py:Model", *TASK, "--weights", "tied.safetensors")
    assert code == 0, err
    assert "measured as it is" in out


def test_weights_of_ours_bring_model_and_task(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sizes = ["--embed-dim", "16", "--state-dim", "8", "--num-sequences", "10"]
    assert run("design", *TASK, *sizes, "--output", "circuit.safetensors")[0] == 0
    code, out, err = run("measure", "--weights", "circuit.safetensors", "--num-facts", "4", "--num-sequences", "20")
    assert code == 0, err
    assert "stores 256 entries" in " ".join(out.split())
    arguments = ["--num-facts", "4", "--num-sequences", "20", "--seed", "3", "--json"]
    first = json.loads(run("measure", "circuit.safetensors", *arguments)[1])
    assert first == json.loads(run("measure", "--weights", "circuit.safetensors", *arguments)[1])
    model, _ = read_weights(Path("circuit.safetensors"))
    task = MQARSpec(vocab_size=32, num_facts=4)
    score = evaluate(model, task, 20, torch.Generator().manual_seed(3))
    assert (first["accuracy"]["mean"], first["accuracy"]["queries"]) == (score.accuracy, score.queries)
    assert first["task"] == task.model_dump(mode="json")
    code, _, err = run("measure", "circuit.safetensors", "--num-sequences", "0")
    assert (code, "num_sequences=0" in err) == (2, True)
    code, _, err = run("measure", "circuit.safetensors", "--device", "tpu9")
    assert (code, "device='tpu9'" in err) == (2, True)
    code, _, err = run("measure", "mamba", "--weights", "circuit.safetensors")
    assert code == 2
    assert "holds a linear" in err


def test_capacity_prints_its_trainings_and_uses_them_again(run, tmp_path):
    arguments = ["capacity", "--vocab-size", "32", "--embed-dim", "8", "--state-dim", "4", "--target", "0.5", *SHORT]
    arguments += ["--store", tmp_path / "store", "--max-runs", "1", "--workers", "1"]
    first = json.loads(run(*arguments, "--json")[1])
    assert (first["unknown"], first["law"]) == ("num_facts", "trained-sharing")
    (tried,) = first["runs"]
    assert tried["new"]
    code, out, err = run(*arguments)
    assert code == 0, err
    assert f"{tried['accuracy']:.4f} at chance    found" in out
    assert "did not learn under this recipe: num_facts=8 stayed at chance" in out
    assert "1 training," in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["measure"], "which model?"),
        (["measure", "liner", *TASK], "Did you mean linear"),
        (["measure", "linear_mamba", *TASK], "--embed-dim"),
        (["measure", "nowhere.py:Model", *TASK], "there is no file nowhere.py"),
        (["measure", "linear_mamba", "--weights", "nowhere.safetensors"], "no such weights file"),
        (["measure", "linear_mamba", *TASK, *SIZES, "--seeds", 0], "seeds=0"),
        (["measure", "linear_mamba", *TASK, *SIZES, "--compare-with", "nowhere"], "no such store or architecture"),
        (["capacity", "--target", "0.9", *TASK, *SIZES], "nothing is left to find"),
        (["capacity", "--target", "0.9", "--vocab-size", 32], "too much is left to find"),
        (["capacity", "--target", "1.5", "--vocab-size", 32, *SIZES], "target=1.5"),
        (["capacity", "--target", "0.9", *TASK, "--embed-dim", 4, "--solve-for", "vocab_size"], "vocab_size"),
        (["capacity", "--target", "0.9", *SIZES, "--vocab-size", 32, "--solve-for", "num_facs"], "mean num_facts"),
        (["capacity", "--target", "0.9", *TASK, "--embed-dim", 4, "--solve-for", "embed_dim"], "--state-dim as well"),
        (["capacity", "--target", "0.9", *TASK, *SIZES, "--solve-for", "seed"], "'seed' cannot"),
        (["capacity", "--target", "0.9", "--vocab-size", 32, *SIZES, "--max-runs", 0], "max_runs=0"),
    ],
)  # fmt: skip
def test_bad_input_is_answered_in_one_paragraph(arguments, says, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*arguments)
    assert (code, out) == (2, ""), err
    assert "Traceback" not in err
    assert says in err


def test_a_hopeless_target_is_an_answer(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["--target", "0.01", "--vocab-size", 32, "--embed-dim", 4, "--state-dim", 2]
    code, out, _ = run("capacity", *arguments)
    assert code == 0
    assert out.startswith("no answer")
    assert torch.get_num_threads() >= 1
