"""measure and inspect on a Hugging Face folder: token numbers as keys and values, and a sentence that says so."""

import json

import pytest
import torch
from transformers import Mamba2Config, Mamba2ForCausalLM, MambaConfig, MambaForCausalLM

from commands import refused


@pytest.fixture(scope="module", params=["mamba", "mamba2"])
def folder(request, tmp_path_factory):
    path = tmp_path_factory.mktemp(request.param)
    sizes = {"vocab_size": 51, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2}
    with torch.random.fork_rng():
        if request.param == "mamba":
            MambaForCausalLM(MambaConfig(**sizes)).save_pretrained(path)
        else:
            heads = {"num_heads": 4, "head_dim": 8, "n_groups": 1}
            Mamba2ForCausalLM(Mamba2Config(**sizes, **heads)).save_pretrained(path)
    return path


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path_factory, monkeypatch):
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))


def test_measure_says_what_is_measured(folder, run):
    code, out, err = run("measure", folder, "--num-facts", 3, "--num-sequences", 20)
    assert (code, err) == (0, "")
    assert "recall " in out
    assert "token numbers 0..49" in out  # an even number of them
    assert "largest of all 51" in out
    arguments = ["--task", "ar", "--vocab-size", 16, "--num-facts", 3, "--num-sequences", 20, "--json"]
    answer = json.loads(run("measure", folder, *arguments)[1])
    assert (answer["task"]["kind"], answer["task"]["vocab_size"], answer["accuracy"]["queries"]) == ("ar", 16, 20)


def test_the_examples_in_the_help_run(folder, run):
    lines = [line.strip() for line in run("measure", "--help")[1].splitlines()]
    plain, stored = [line for line in lines if line.startswith("recallscope measure WEIGHTS")]
    sizes = " --num-facts 4 --vocab-size 32"  # what the header of other weights says
    for example in (plain, stored + sizes):
        arguments = [str(folder) if word == "WEIGHTS" else word for word in example.split()[1:]]
        code, _, err = run(*arguments)
        assert code == 0, err


def test_inspect_takes_the_fields_of_the_task_and_no_others(folder, run):
    code, out, err = run("inspect", folder, "--num-facts", 3, "--vocab-size", 16, "--num-sequences", 20)
    assert (code, err) == (0, "")
    assert "left out" in out
    assert "token numbers 0..15" in out
    refused(run("inspect", folder, "--num-facts", 3, "--embed-dim", 8), "--embed-dim")


def test_mistakes_name_the_way_out(folder, run, tmp_path):
    refused(run("measure", folder), "--num-facts")
    refused(run("measure", folder, "--num-facts", 3, "--vocab-size", 64), "51 tokens", "--vocab-size 50")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    refused(run("measure", tmp_path, "--num-facts", 3), "pickled", "safetensors")


def test_a_larger_vocabulary_than_the_weights_have_is_refused(run, tmp_path):
    path = tmp_path / "circuit.safetensors"
    sizes = ["--vocab-size", 32, "--num-facts", 3, "--embed-dim", 16, "--state-dim", 4, "--num-sequences", 10]
    assert run("design", *sizes, "--output", path)[0] == 0
    refused(run("measure", path, "--vocab-size", 64), "32 tokens")
    assert json.loads(run("measure", path, "--task", "ar", "--num-sequences", 9, "--json")[1])["task"]["kind"] == "ar"
