"""Tasks, architectures and modules of one's own are swept like the package's, by workers that import them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from commands import Command
from recallscope.registry import import_from
from recallscope.runs.driver import run_sweep
from recallscope.runs.engine import EngineError
from recallscope.runs.grid import Grid, grid_from_fields
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs, parse_conditions

EXTENSION = Path(__file__).resolve().parents[1] / "extension"
BASE = {
    "task": {"vocab_size": 16, "num_facts": 2},
    "train": {"batch_size": 4, "warmup_steps": 1, "flat_steps": 3, "decay_steps": 2, "eval_every": 3, "eval_size": 8},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder with the example plugins, which is the current one."""
    shutil.copytree(EXTENSION, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path / "mine")
    return tmp_path / "mine"


def sweep_file(folder, tables, *flags, **environment):
    (folder / "grid.toml").write_text(tables)
    sweep = Command("sweep", "grid.toml", "--store", "store", "--json", *flags, cwd=folder, env=environment)
    sweep.wait()
    return sweep


TOML = """
[task]
vocab_size = 16
num_facts = 2
{task}
[model]
kind = "{model}"
{fields}
[train]
batch_size = 4
warmup_steps = 1
flat_steps = 3
decay_steps = 2
eval_every = 3
eval_size = 8
[axes]
{axes}
"""


@pytest.mark.slow
def test_an_architecture_and_a_task_in_files_are_swept_by_two_workers(folder):
    text = TOML.format(
        task='kind = "my_noisy_mqar"',
        model="my_delta_net",
        fields="embed_dim = 4\nstate_dim = 2",
        axes="conv_width = [1, 2]\nnoise = [0.0, 0.5]",
    )
    plugins = {"RECALLSCOPE_PLUGINS": os.pathsep.join(("my_delta_net.py", "my_noisy_task.py"))}
    done = sweep_file(folder, text, "--workers", "2", **plugins)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"] == 4
    store = RunStore(folder / "store")  # here the plugins are not loaded
    rows = find_runs(store, parse_conditions(["noise>0", "conv_width=2"]))
    assert [(row["task"], row["model"], row["status"]) for row in rows] == [("my_noisy_mqar", "my_delta_net", "done")]
    again = sweep_file(folder, text, "--workers", "2", **plugins)
    assert json.loads(again.stdout)["skipped"] == 4


def test_any_argument_of_a_module_of_ones_own_may_be_an_axis(folder):
    text = TOML.format(task="", model="my_gru.py:Model", fields="", axes="width = [4, 8]\nseed = [0, 1]")
    done = sweep_file(folder, text, "--workers", "2")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["done"] == 4
    rows = find_runs(RunStore(folder / "store"), parse_conditions(["width>4"]))
    assert [(row["model"], row["width"]) for row in rows] == [("my_gru.py:Model", 8)] * 2
    source = folder / "my_gru.py"
    source.write_text(source.read_text() + "\n# another model now\n")
    changed = sweep_file(folder, text, "--dry-run")
    assert json.loads(changed.stdout)["missing"] == 4


def test_a_module_that_cannot_be_built_fails_in_one_sentence(folder):
    text = TOML.format(task="", model="my_gru.py:Model", fields="", axes="size = [4]")
    done = sweep_file(folder, text, "--workers", "1")
    assert done.returncode == 1
    assert "could not begin: my_gru.py:Model is called with vocab_size=16, size=4" in done.stderr
    (row,) = find_runs(RunStore(folder / "store"))
    assert (row["status"], row["size"]) == ("failed", 4)


SCRIPT = """
import my_delta_net
from recallscope.runs.grid import Grid
from recallscope.runs.driver import run_sweep
from recallscope.specs import RunSpec

if __name__ == "__main__":
    run = RunSpec.model_validate({base!r} | {{"model": {{"kind": "my_delta_net", "embed_dim": 4, "state_dim": 2}}}})
    print(run_sweep(Grid.around(run, axes={{"seed": [0, 1]}}), "store", workers=2).done)
"""


def test_workers_find_what_a_script_imports_from_its_own_folder(folder, tmp_path):
    """The script stands elsewhere than the current folder, so only it has its folder on the search path."""
    (folder / "script.py").write_text(SCRIPT.format(base=BASE))
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [sys.executable, str(folder / "script.py")],
        cwd=tmp_path / "elsewhere",
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.stdout.split() == ["2"], done.stderr


BROKEN = """
import os
if os.getpid() != {pid}:
    raise RuntimeError("no licence on this machine")
from recallscope import LinearMambaSpec, architecture

@architecture("{name}")
class BrokenSpec(LinearMambaSpec):
    pass
"""


def broken_grid(folder, name, seeds):
    (folder / f"{name}.py").write_text(BROKEN.format(name=name, pid=os.getpid()))
    import_from(str(folder / f"{name}.py"))
    model = {"kind": name, "embed_dim": 4, "state_dim": 2}
    return grid_from_fields(BASE | {"model": model, "axes": {"seed": list(range(seeds))}})


def test_an_import_that_fails_in_the_worker_is_the_runs_failure_in_one_sentence(folder):
    grid = broken_grid(folder, "broken_once", 1)
    outcome = run_sweep(grid, "store", workers=1)
    assert outcome.failed == 1
    failure = RunStore("store").failure(grid.cells()[0].run)
    assert failure.tries == 1
    assert failure.reason.startswith("could not begin: importing ")
    assert failure.reason.endswith("broken_once.py failed: RuntimeError: no licence on this machine")


def test_a_sweep_whose_workers_all_refuse_stops_and_blames_no_run(folder):
    grid = broken_grid(folder, "broken_all", 8)
    with pytest.raises(EngineError, match=r"no worker can begin a run.*no licence on this machine"):
        run_sweep(grid, "store", workers=1)
    assert not [cell for cell in grid.cells() if RunStore("store").failure(cell.run)]


def test_fields_of_plugins_are_axes_and_slips_are_answered_with_the_nearest(folder):
    source = (folder / "my_delta_net.py").read_text().replace("my_delta_net", "with_taps").replace("conv_width", "taps")
    (folder / "with_taps.py").write_text(source)
    import_from("with_taps.py")
    fields = BASE | {"model": {"kind": "with_taps", "embed_dim": 4, "state_dim": 2}}
    assert [cell.fields["taps"] for cell in grid_from_fields(fields | {"axes": {"taps": [1, 2]}}).cells()] == [1, 2]
    with pytest.raises(ValueError, match="Did you mean taps"):
        grid_from_fields(fields | {"axes": {"tapz": [1, 2]}})
    mixed = {"model": ["with_taps", "linear_mamba"], "num_layers": [1]}
    with pytest.raises(ValueError, match="has no field 'num_layers'"):
        grid_from_fields(fields | {"axes": mixed}).cells()
    with pytest.raises(ValueError, match="Did you mean with_taps"):
        grid_from_fields(fields | {"axes": {"model": ["with_tapes"]}})


def test_an_argument_with_the_name_of_another_field_is_said_with_its_part(folder):
    model = {"kind": "my_gru.py:Model", "batch_size": 3, "steps": 5}
    grid = grid_from_fields(
        BASE
        | {"model": model, "axes": {"model.batch_size": [3, 4]}, "derived": {"seed": "model.batch_size + batch_size"}}
    )
    for cell, argument in zip(grid.cells(), (3, 4), strict=True):
        assert cell.fields == {"model.batch_size": argument, "seed": argument + 4}
        assert cell.spec.model.arguments == {"batch_size": argument, "steps": 5}
        assert cell.spec.train.batch_size == 4
    assert isinstance(Grid.around(grid.cells()[0].spec), Grid)
