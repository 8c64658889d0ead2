"""Help, version, quiet, and a run from a file, as a newcomer tries them."""

import json
import re
from pathlib import Path

import pytest

from commands import refused
from recallscope import __version__
from recallscope.circuits.circuit import CIRCUITS
from recallscope.cli.main import COMMANDS
from recallscope.presets import PRESETS
from recallscope.specs import ARCHITECTURES, TASKS

ROOT = Path(__file__).resolve().parents[2]
QUICK = ["--vocab-size", "32", "--num-facts", "3", "--embed-dim", "8", "--state-dim", "4"]
SHORT = ["--batch-size", "8", "--warmup-steps", "5", "--flat-steps", "5", "--decay-steps", "5", "--eval-size", "20"]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_help_shows_none_or_an_empty_default(command, run):
    _, out, _ = run(command, "--help")
    assert "None" not in out
    assert "(default: )" not in out or command == "predict"


def test_help_command_is_command_help_and_version_has_two_names(run):
    assert run("help", "fit")[1] == run("fit", "--help")[1]
    assert "RECALLSCOPE_TRACEBACK" in run("help")[1]
    assert run("help")[1] == run()[1]
    refused(run("help", "fti"), "fit")
    assert run("-V") == run("--version") == (0, f"recallscope {__version__}\n", "")


def test_help_lists_the_names_of_the_registries(run):
    text = re.sub(r"[│\s]+", " ", run("train", "--help")[1])
    for registry in (PRESETS, ARCHITECTURES.names(), TASKS.names()):
        assert ", ".join(registry) in text
    assert ", ".join(CIRCUITS.names()) in re.sub(r"[│\s]+", " ", run("design", "--help")[1])


def test_help_shows_the_defaults_of_the_preset(run):
    text = re.sub(r"[│\s]+", " ", run("train", "--preset", "large-vocab", "--help")[1])
    batch = PRESETS["large-vocab"].train["batch_size"]
    assert batch != 128
    assert f"sequences in one forward pass (default: {batch})" in text


def test_a_flag_of_another_model_names_its_owner(run):
    refused(
        run("train", *QUICK, "--gate", "yes"),
        "--gate: linear_mamba has no field 'gate'; mamba has it. Add --model mamba.",
    )
    refused(run("train", *QUICK, "--head-pattern=MHA"), "multihead", "--model")
    refused(run("train", *QUICK, "--model-args", '{"gate": true}'), "mamba has it")
    refused(run("train", *QUICK, "--model-args", '{"embed_dmi": 3}'), "Did you mean embed_dim?")


@pytest.mark.parametrize(
    ("table", "line", "says"),
    [
        ("model", "embed_dmi = 8", ", line 2: [model] linear_mamba has no field 'embed_dmi'. Did you mean embed_dim?"),
        ("train", "batchsize = 8", ", line 2: [train] train has no field 'batchsize'. Did you mean batch_size"),
        ("model", "gate = true", ", line 2: [model] linear_mamba has no field 'gate'; mamba has it."),
        ("tsak", "vocab_size = 8", "Did you mean task"),
    ],
)
def test_a_misspelt_field_of_a_grid_or_a_run_is_named_with_its_line(table, line, says, run, tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(f"[{table}]\n{line}\n")
    refused(run("sweep", path, "--dry-run"), says, "grid.toml")
    refused(run("train", "--config", path), says, "grid.toml")


def test_a_run_from_a_file_and_flags_on_top(run, tmp_path):
    path = ROOT / "examples" / "run.toml"
    from_file = json.loads(run("train", "--config", path, *SHORT, "--json")[1])["spec"]
    assert (from_file["model"]["embed_dim"], from_file["train"]["batch_size"], from_file["seed"]) == (16, 8, 0)
    own = tmp_path / "own.toml"
    own.write_text('seed = 3\npreset = "dn-linear"\n[task]\nvocab_size = 32\nnum_facts = 3\n[model]\nkind = "mamba"\n')
    arguments = ["--embed-dim", 8, "--state-dim", 4, "--gate", "no", *SHORT]
    changed = json.loads(run("train", "--config", own, *arguments, "--json")[1])["spec"]
    assert (changed["model"]["kind"], changed["model"]["gate"], changed["seed"]) == ("mamba", False, 3)
    assert json.loads(run("train", "--config", own, *arguments, "--seed", 0, "--json")[1])["spec"]["seed"] == 0


def test_mistakes_in_a_file_name_the_file_and_the_line(run, tmp_path):
    path = tmp_path / "run.toml"
    text = (ROOT / "examples" / "run.toml").read_text()
    path.write_text(text.replace("embed_dim = 16", 'embed_dim = "16"'))
    line = 1 + path.read_text().splitlines().index('embed_dim = "16"')
    refused(run("train", "--config", path), f"run.toml, line {line}: model.embed_dim='16'", "whole number")
    assert run("train", "--config", path, "--embed-dim", 8, *SHORT)[0] == 0  # the flag mends it
    refused(run("train", "--config", path, "--embed-dim", 8, "--seed", -1), "seed=-1: it must be at least 0")
    path.write_text("[task]\nvocab_size = 16\nnum_facts = 2.5\n[model]\nembed_dim = 4\nstate_dim = 2\n")
    *_, told = run("train", "--config", path)
    assert told.endswith("run.toml, line 3: task.num_facts=2.5: it must be a whole number.\n")
    path.write_text("[task\n")
    refused(run("train", "--config", path), "run.toml", "line 1")
    refused(run("train", "--config", tmp_path / "nowhere.toml"), "nowhere.toml")
    refused(run("train", "--config", path, "--preset", "dn-linear"), "--preset and --config")
    refused(run("train", "--config", ROOT / "examples" / "tiny_grid.toml"), "recallscope sweep")
    refused(run("train"), "--preset or --config")


def test_quiet_shows_no_progress(run, monkeypatch):
    monkeypatch.setattr("recallscope.cli.training.is_interactive", lambda: True)
    assert "training" in run("train", *QUICK, *SHORT)[2]
    assert "training" not in run("train", *QUICK, *SHORT, "-q")[2]


@pytest.mark.parametrize(
    ("command", "trains"),
    [
        (("measure", "linear_mamba", *QUICK, "--out"), "recallscope.measuring.training_runs.store_trainer"),
        (
            ("capacity", *QUICK, "--target", ".9", "--solve-for", "num_facts", "--store"),
            "recallscope.measuring.training_runs.store_trainer",
        ),
        (("reproduce", "layers", "--scale", "quick", "--store"), "recallscope.runs.driver.run_sweep"),
    ],
)
def test_quiet_is_for_every_command_that_trains(command, trains, run, monkeypatch, tmp_path):
    views = []

    def stop(*_, view, **__):
        views.append(view)
        raise ValueError("enough")

    monkeypatch.setattr(trains, stop)
    for more in ((), ("-q",)):
        assert "enough" in run(*command, tmp_path / "out", *more)[2]
    assert views[0] is not None
    assert views[1] is None


def test_internal_errors_tell_how_to_see_more(run, monkeypatch):
    from recallscope.cli.laws import Laws

    monkeypatch.setattr(Laws, "run", lambda self: 1 / 0)
    code, _, err = run("laws")
    assert code == 1
    assert "RECALLSCOPE_TRACEBACK=1" in err


def test_ray_is_for_trusted_networks_and_the_loopback_form_is_given(run, tmp_path):
    assert "trusted networks only" in re.sub(r"[│\s]+", " ", run("sweep", "--help")[1])
    grid = ROOT / "examples" / "tiny_grid.toml"
    where = ["--store", tmp_path / "store", "--engine", "ray", "--address", "127.0.0.1:1"]
    refused(run("sweep", grid, *where), "ray start --head --node-ip-address=127.0.0.1", "trusted networks only")
