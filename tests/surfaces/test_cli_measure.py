"""`measure` and `capacity` as a user meets them, and the flags of a stored state."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file, save_model

from commands import refused
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
    """The whole way: short runs at four rates, in three ways, one is measured; a second call trains nothing.

    So few steps teach nothing, and no size, bits or rank is derived from the accuracy.
    """
    arguments = ["measure", mine, *TASK, *SHORT, "--width", 12, "--out", "out", "--workers", "1", "--json"]
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
    assert "1 runs\n12 learning-rate trials of measurements are left out" in listed
    assert "13 runs\n" in every


def test_a_wrong_name_is_refused_before_anything_is_trained(mine, run, tmp_path):
    wrong = run("measure", "my_gru.py:Modell", *TASK, "--out", "here")
    assert wrong == (2, "", "recallscope: my_gru.py has no 'Modell'; modules in it: Model.\n")
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
    refused(run(*arguments, "--model-args", '{"width": 7}', "--weights", "plain.safetensors"), "does not fit")
    model.head.bias.data[0] = torch.nan
    save_file(model.state_dict(), "plain.safetensors")
    refused(run(*arguments, "--weights", "plain.safetensors"), "1 of 32 numbers of module.head.bias are NaN")


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
    refused(run("measure", "circuit.safetensors", "--num-sequences", "0"), "num_sequences=0")
    refused(run("measure", "circuit.safetensors", "--device", "tpu9"), "device='tpu9'")
    refused(run("measure", "mamba", "--weights", "circuit.safetensors"), "holds a linear")


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
        (["measure", "nowhere.py:Model", *TASK], "no file nowhere.py"),
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
    refused(run(*arguments), says)


def test_a_hopeless_target_is_an_answer(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run("capacity", "--target", "0.01", "--vocab-size", 32, "--embed-dim", 4, "--state-dim", 2)
    assert (code, out[:9]) == (0, "no answer")


RUNS = Path(__file__).parents[2] / "results" / "paper" / "runs"
DELTA_NET, ATTENTION = (str(next(RUNS.glob(f"{name}*")) / "weights.safetensors") for name in ("109376d5", "2f00702e"))


def test_measure_puts_the_stored_the_exact_and_the_predicted_recall_side_by_side(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("measure", DELTA_NET, "--state-format", "int3", "--num-sequences", 60, "--json")
    assert code == 0, err
    found = json.loads(out)
    stored = found["stored_state"]
    assert found["accuracy"]["mean"] == stored["stored"]
    assert stored["stored"] < stored["exact"] - 0.05
    assert abs(stored["stored"] - stored["predicted"]) < 0.15
    (head,) = stored["heads"]
    assert 0.9 < head["kept"] <= 1
    assert 1 < head["absmax_over_rms"] < 4
    assert 4 <= head["bits"] <= 9
    assert (tmp_path / "runs" / "measured" / f"delta_net-as-it-is-{stored['precision_id'][:8]}.json").exists()
    code, again, err = run("measure", DELTA_NET, "--state-format", "int3", "--num-sequences", 60, "--json")
    assert json.loads(again) == found


def test_a_state_in_sixteen_bits_is_as_good_as_exact(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for flags in (["--state-format", "int16"], ["--state-format", "fp16", "--rounding", "stochastic"]):
        code, out, err = run("measure", DELTA_NET, *flags, "--num-sequences", 60, "--json")
        assert code == 0, err
        stored = json.loads(out)["stored_state"]
        assert abs(stored["stored"] - stored["exact"]) < 0.01


def test_several_formats_are_a_table_beside_the_exact_recall(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = ["measure", DELTA_NET, "--num-sequences", 60, "--state-format"]
    code, out, err = run(*asked, "int8", "int3", "fp8-e5m2", "--json")
    assert code == 0, err
    found = json.loads(out)
    rows = found["stored_states"]
    assert [row["precision"]["format"] for row in rows] == ["int8", "int3", "fp8-e5m2"]
    assert {row["exact"] for row in rows} == {found["accuracy"]["mean"]}
    assert rows[1]["stored"] == json.loads(run(*asked, "int3", "--json")[1])["stored_state"]["stored"]
    lines = run(*asked, "int8", "int3")[1].splitlines()
    assert lines[-2].startswith("int8 per row, nearest, every token")
    assert lines[-1].split()[-4] == f"{rows[1]['stored']:.4f}"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([DELTA_NET, "--state-format", "int88"], "Did you mean int8"),
        ([DELTA_NET, "--state-format", "int8", "--rounding", "error-feedback", "--residual-bits", 9], "wider than"),
        ([DELTA_NET, "--state-format", "int8", "--round-every", "often"], "a number of tokens, or once"),
        ([DELTA_NET, "--rounding", "stochastic"], "Try --state-format int8"),
        ([ATTENTION, "--state-format", "int8"], "not a matrix of fixed size"),
        (["delta_net", "--vocab-size", 32, "--num-facts", 2, "--embed-dim", 4, "--state-dim", 2, "--state-format",
          "int8"], "Train first"),
    ],
)  # fmt: skip
def test_what_cannot_be_stored_is_a_sentence(run, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = run("measure", *arguments)
    assert (code, said in " ".join(err.split())) == (2, True)


def test_inspect_prints_what_every_head_needs(run):
    code, out, err = run("inspect", DELTA_NET, "--num-sequences", 40)
    assert code == 0, err
    assert "bits of the state" in out
    assert "layer 0 head 0: absmax/rms" in " ".join(out.split())


def test_capacity_counts_the_stored_state(run, tmp_path, monkeypatch):
    """The same runs, another accuracy, under an identity of its own, and used again."""
    monkeypatch.chdir(tmp_path)
    asked = ["capacity", "--model", "delta_net", "--vocab-size", 32, "--embed-dim", 8, "--state-dim", 4, "--target",
             0.2, "--max-runs", 2, "--batch-size", 16, "--warmup-steps", 5, "--flat-steps", 20, "--decay-steps", 20,
             "--eval-size", 40, "--learning-rate", 0.01, "--workers", 0, "--json"]  # fmt: skip
    code, out, err = run(*asked, "--state-format", "int2", "--state-scale", "tensor")
    assert code == 0, err
    kept = sorted((tmp_path / "runs" / "capacity" / "stored-states").glob("*.json"))
    found = json.loads(out)
    assert found["precision"]["format"] == "int2"
    by_run = {json.loads(path.read_text())["identity"]["run"]: json.loads(path.read_text()) for path in kept}
    assert by_run.keys() == {tried["run"] for tried in found["runs"]}
    for tried in found["runs"]:
        assert tried["accuracy"] == by_run[tried["run"]]["test_accuracy"]
        assert tried["exact"] == by_run[tried["run"]]["exact_accuracy"]
    code, again, err = run(*asked, "--state-format", "int2", "--state-scale", "tensor")
    assert json.loads(again)["runs"][0]["accuracy"] == found["runs"][0]["accuracy"]
    assert sorted((tmp_path / "runs" / "capacity" / "stored-states").glob("*.json")) == kept


def test_size_counts_bits_and_predict_takes_a_format(run):
    sizes = ["--embed-dim", 128, "--state-dim", 128, "--vocab-size", 32768]
    code, out, err = run("size", "--target", 0.9, "--bits", 1024, *sizes, "--json")
    assert code == 0, err
    rows = {row["scale"]: row for row in json.loads(out)["rows"]}
    assert (rows["row"]["nearest"], rows["tensor"]["nearest"], rows["block16"]["nearest"]) == (9, 9, 8)
    assert rows["row"]["once"] == 4
    cell = ["--vocab-size", 512, "--num-facts", 16, "--embed-dim", 32, "--state-dim", 8]
    values = {}
    for name in ("int4", "int8"):
        code, out, err = run("predict", *cell, "--state-format", name, "--json")
        assert code == 0, err
        answer = json.loads(out)
        values[name] = answer["stored_state"]["rows"][0]
        assert values[name] <= answer["headline"]["probability"] + 1e-3
    assert values["int4"] < values["int8"]
    code, out, err = run("predict", *cell, "--state-format", "int8", "int4")
    assert code == 0, err
    for name, value in values.items():
        assert f"with the state stored as {name} per row, nearest, every token: {value:.3f}" in out
