"""Flags of a stored state, as a user meets them."""

import json
from pathlib import Path

import pytest

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
    assert code == 2
    assert said in " ".join(err.split())


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
    assert by_run.keys() == {path.name for path in (tmp_path / "runs" / "capacity" / "runs").iterdir()}
    for tried in found["runs"]:  # the other runs are the same with fewer steps
        assert tried["accuracy"] == by_run[tried["run"]]["test_accuracy"]
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
