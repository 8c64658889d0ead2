"""`recallscope probe` as a user meets it: a folder in, a record, a figure and a page out; mistakes in a sentence."""

import json
import re
import shlex
import shutil
import socket
import sys
from pathlib import Path

import pytest
import torch
import transformers as hf
from probe_models import FAMILIES, build, letter_tokenizer, save, word_tokenizer
from safetensors.torch import load_file, save_file

from recallscope.cli.main import COMMANDS, main
from recallscope.measuring.checkpoints.record import read_probe

PAGE = Path(__file__).parents[3] / "docs" / "PROBE.md"
QUICK = ("--num-sequences", 1, "--max-facts", 8)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("checkpoints")
    return {family: save(family, root / family) for family in FAMILIES}


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_random_checkpoint_on_disk_does_not_recall(family, folders, run, tmp_path, no_network):
    code, out, err = run("probe", folders[family], *QUICK, "--store", tmp_path, "--json")
    assert (code, err) == (0, "")
    answer = json.loads(out)
    assert answer["verdict"].startswith("does not recall")
    assert (answer["name"], answer["copies_differ"] < 1e-4) == (family, True)
    assert read_probe(Path(answer["record"])).probe == answer["probe"]
    assert Path(answer["figure"]).read_bytes()[:4] == b"\x89PNG"
    assert family in Path(answer["page"]).read_text()


def test_a_probe_is_found_again_and_compared(folders, run, tmp_path):
    where = ("--store", tmp_path / "store")
    for family in ("mamba", "llama"):
        code, out, _ = run("probe", folders[family], *QUICK, *where, "--figure", tmp_path / "one.svg")
        assert code == 0
        assert f"{family}  does not recall" in out
        assert "answered from the record" not in out
    assert "answered from the record" in run("probe", folders["llama"], *QUICK, *where)[1]
    code, out, _ = run("probe", "--compare-with", "mamba", "llama", *where, "--figure", tmp_path / "both.png")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[:3]] == ["checkpoint", "mamba", "llama"]
    assert (tmp_path / "both.png").is_file()
    both = json.loads(run("probe", "--compare-with", "mamba", "llama", *where, "--json")[1])["probes"]
    assert [record["name"] for record in both] == ["mamba", "llama"]


def test_the_bar_names_the_facts_and_quiet_shows_none(folders, run, tmp_path, monkeypatch):
    monkeypatch.setattr("recallscope.train.progress.is_interactive", lambda: True)
    flags = ("probe", folders["llama"], *QUICK, "--store")
    shown = run(*flags, tmp_path / "a")[2]
    assert "queries" in shown
    assert "at most about" in shown
    assert run(*flags, tmp_path / "b", "--quiet")[2] == ""


def refused(result, store, *phrases):
    code, out, err = result
    assert (code, out) == (2, ""), (code, out, err)
    assert "Traceback" not in err
    for word in phrases:
        assert word in err, err
    assert not store.exists(), "nothing is written"


def spoil_pickle(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def spoil_positions(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 4}))


def spoil_index(folder: Path, name: str) -> None:
    (folder / "model.safetensors").rename(folder / "part.safetensors")
    index = {"metadata": {}, "weight_map": {"a": "part.safetensors", "b": name}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def spoil_link(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder.parent / "elsewhere.safetensors")
    (folder / "model.safetensors").symlink_to(folder.parent / "elsewhere.safetensors")


def spoil_tokenizer_link(folder: Path) -> None:
    (folder / "tokenizer.json").rename(folder.parent / "tokenizer.json")
    (folder / "tokenizer.json").symlink_to("../tokenizer.json")


def spoil_code(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "mine", "auto_map": {"AutoConfig": "mine.C", "AutoModelForCausalLM": "mine.M"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "mine.py").write_text("raise SystemExit('the code was run')\n")


def spoil_weights(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))


def spoil_numbers(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][0] = torch.nan
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


SPOILT = {
    "pickle": (spoil_pickle, ["pytorch_model.bin is pickled", "safetensors"]),
    "missing shard": (lambda folder: spoil_index(folder, "other.safetensors"), ["other.safetensors", "not there"]),
    "path outside": (lambda folder: spoil_index(folder, "../x.safetensors"), ["'../x.safetensors'", "beside it"]),
    "absolute path": (lambda folder: spoil_index(folder, "/etc/passwd"), ["'/etc/passwd'", "beside it"]),
    "link outside": (spoil_link, ["leads out of the folder"]),
    "tokenizer outside": (spoil_tokenizer_link, ["tokenizer.json", "leads out of the folder"]),
    "code": (spoil_code, ["transformers cannot read"]),
    "weights that are not there": (spoil_weights, ["draw at random"]),
    "no config": (lambda folder: (folder / "config.json").unlink(), ["no config.json", "downloads nothing"]),
    "broken config": (lambda folder: (folder / "config.json").write_text("[1"), ["config.json", "JSON"]),
    "broken weights": (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 99), ["cannot read"]),
    "adapter": (lambda folder: (folder / "adapter_config.json").write_text("{}"), ["adapter", "Merge it"]),
    "not a number": (spoil_numbers, ["NaN or infinite"]),
    "too few positions": (spoil_positions, ["positions for 4", "Not even one fact fits"]),
    "another's tokenizer": (lambda folder: word_tokenizer(500).save_pretrained(folder), ["do not belong together"]),
    "no tokenizer": (lambda folder: [path.unlink() for path in folder.glob("token*")], ["transformers cannot read"]),
}


@pytest.mark.parametrize("how", SPOILT)
def test_a_spoilt_folder_is_refused_with_a_sentence(how, folders, run, tmp_path, no_network):
    spoil, phrases = SPOILT[how]
    folder = tmp_path / "spoilt"
    shutil.copytree(folders["llama"], folder)
    spoil(folder)
    refused(run("probe", folder, *QUICK, "--store", tmp_path / "store"), tmp_path / "store", *phrases)


def test_a_pickle_beside_safetensors_is_not_opened_and_few_facts_are_enough(folders, run, tmp_path):
    folder = tmp_path / "both"
    shutil.copytree(folders["llama"], folder)
    (folder / "pytorch_model.bin").write_bytes(b"no pickle at all")
    code, out, _ = run("probe", folder, "--num-sequences", 1, "--max-facts", 2, "--store", tmp_path / "store")
    assert (code, "does not recall" in out) == (0, True)


def test_what_cannot_be_probed_is_refused_with_a_sentence(folders, run, tmp_path):
    store = tmp_path / "store"
    letters = save("llama", tmp_path / "letters", letter_tokenizer())
    refused(run("probe", letters, "--store", store), store, "no two words of this tokenizer are one token each")
    config = hf.OpenAIGPTConfig(vocab_size=103, n_embd=16, n_layer=1, n_head=2, n_positions=64)
    with torch.random.fork_rng():
        hf.OpenAIGPTLMHeadModel(config).save_pretrained(tmp_path / "gpt")
    word_tokenizer().save_pretrained(tmp_path / "gpt")
    refused(run("probe", tmp_path / "gpt", "--store", store), store, "OpenAIGPTLMHeadModel has no cache")
    short = build("llama", 103)
    short.config.max_position_embeddings = 40
    short.save_pretrained(tmp_path / "short")
    word_tokenizer().save_pretrained(tmp_path / "short")
    flags = ("--num-facts", 16, "--shots", 0, "--store", store)
    refused(run("probe", tmp_path / "short", *flags), store, "50 tokens", "positions for 40", "Use 12")
    llama = folders["llama"]
    refused(run("probe", llama, "--template", "bear", "--store", store), store, "Did you mean bare?")
    refused(run("probe", llama, "--dtype", "int8", "--store", store), store, "float32, bfloat16")
    refused(run("probe", llama, "--figure", "x.jpg", "--store", store), store, ".png")
    refused(run("probe", "--store", store), store, "--compare-with")
    refused(run("probe", llama, "--compare-with", "a", "--store", store), store, "not both")
    refused(run("probe", "--compare-with", "a", "--store", store), store, "'a' is no probe")


def test_without_transformers_the_extra_is_named(folders, run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    refused(run("probe", folders["llama"], "--store", tmp_path / "s"), tmp_path / "s", "recallscope[hf]")


def test_help_opens_with_the_command_and_lists_the_templates(run):
    out = re.sub(r"[│\s]+", " ", run("probe", "--help")[1])
    assert "Find how many facts a language model on disk holds in its context. recallscope probe CHECKPOINT" in out
    assert "(bare, natural; default: bare)" in out


@pytest.mark.parametrize("command", re.findall(r"^\$ (recallscope .*)$", PAGE.read_text(), flags=re.M))
def test_every_command_of_the_page_names_a_command_and_its_flags(command, capsys):
    arguments = shlex.split(command, comments=True)[1:]
    assert arguments[0] in COMMANDS
    with pytest.raises(SystemExit):
        main([arguments[0], "--help"])
    text = capsys.readouterr().out
    for word in arguments:
        if word.startswith("--"):
            assert word in text, command
