"""sweep, store and fit as a user meets them: examples as printed, JSON alone on stdout, mistakes answered."""

import io
import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from commands import Command, refused
from recallscope.records import record_text
from recallscope.runs.grid import read_grid
from recallscope.runs.plan import make_plan
from recallscope.runs.store import RunStore
from recallscope.runs.views import LiveView

ROOT = Path(__file__).resolve().parents[2]
GRID = ROOT / "examples" / "tiny_grid.toml"


def first_example(folder):
    """A folder with the examples, in which the first example of `sweep --help` has been run as printed."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    done = Command("sweep", "examples/tiny_grid.toml", "--store", "runs/tiny", "--json", cwd=folder)
    assert done.wait() == 0, done.stderr
    answer = json.loads(done.stdout)  # nothing but JSON
    assert {name: answer[name] for name in ("done", "skipped", "failed")} == {"done": 24, "skipped": 0, "failed": 0}
    assert "[24/24] done" in done.stderr


@pytest.fixture(scope="module")
def home(once, tmp_path_factory):
    made = once("tiny-sweep", first_example)
    return shutil.copytree(made, tmp_path_factory.mktemp("home"), dirs_exist_ok=True)


@pytest.fixture(autouse=True)
def _at_home(home, monkeypatch):
    monkeypatch.chdir(home)


HELPS = [("sweep",), ("fit",), *(("store", command) for command in ("list", "show", "export", "verify"))]


@pytest.mark.parametrize("command", HELPS, ids="-".join)
def test_every_example_in_the_help_runs(command, run, home):
    code, out, _ = run(*command, "--help")
    assert code in (0, None)
    first = out.split("usage:")[-1].split("╭")[0]
    lines = [line.strip().removeprefix("Look before you leap: ") for line in first.splitlines()]
    examples = [line for line in lines if line.startswith(f"recallscope {' '.join(command)} ") and "[" not in line]
    assert examples
    name = next((home / "runs" / "tiny" / "runs").iterdir()).name
    for example in examples:
        arguments = [{"STORE": "runs/tiny", "RUN": name[:8]}.get(word, word) for word in shlex.split(example)]
        code, out, err = run(*arguments[1:])
        assert code == 0, (example, err)
        assert out


def test_the_second_time_there_is_nothing_to_do(run):
    code, out, err = run("sweep", "examples/tiny_grid.toml", "--store", "runs/tiny", "--json")
    assert code == 0
    assert {"done": 0, "skipped": 24, "failed": 0}.items() <= json.loads(out).items()
    assert "24 done, 0 to do" in err


def test_a_dry_run_says_what_is_missing_and_makes_nothing(run, home):
    code, out, _ = run("sweep", "examples/tiny_grid.toml", "--store", "runs/other", "--dry-run", "--json")
    answer = json.loads(out)
    assert code == 0
    assert (answer["runs"], answer["missing"], len(answer["cells"]), answer["left_out"]) == (24, 24, 24, 3)
    assert not (home / "runs" / "other").exists()


def test_without_a_store_the_grids_name_is_its_folder(run, home):
    code, out, _ = run("sweep", "examples/tiny_grid.toml", "--dry-run", "--json")
    assert (code, json.loads(out)["missing"]) == (0, 24)
    shutil.copytree(home / "runs" / "tiny", home / "runs" / "tiny_grid")
    _, out, _ = run("sweep", "examples/tiny_grid.toml", "--dry-run", "--json")
    assert json.loads(out)["missing"] == 0


def test_show_tells_all_about_one_run(run, home):
    name = sorted(path.name for path in (home / "runs" / "tiny" / "runs").iterdir())[0]
    code, out, _ = run("store", "show", "runs/tiny", name[:10], "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["record"]["run"] == name
    assert [entry["event"] for entry in answer["attempts"]] == ["started", "finished"]


def test_export_and_verify_answer_in_json(run, home):
    assert json.loads(run("store", "export", "runs/tiny", "runs.csv", "--json")[1]) == {"runs": 24, "file": "runs.csv"}
    assert len((home / "runs.csv").read_text().splitlines()) == 25
    assert json.loads(run("store", "verify", "runs/tiny", "--json")[1])["clean"] is True


def test_fit_reports_both_forms_all_laws_and_every_cell(run):
    code, out, err = run("fit", "runs/tiny", "--bootstrap", 20, "--json")
    assert (code, err) == (0, "")
    (experiment,) = json.loads(out)["experiments"]
    assert experiment["label"] == "MQAR V=64 linear_mamba"
    assert [fit["form"] for fit in experiment["fits"]] == ["phi", "two-moment"]
    for fit in experiment["fits"]:
        assert fit["a_interval"][0] <= fit["a"] <= fit["a_interval"][1]
    assert len(experiment["laws"]) > 20
    assert len(experiment["laws"][0]["cells"]) == 16
    errors = [law["mean_error"] for law in experiment["laws"] if law["mean_error"] is not None]
    assert errors == sorted(errors)
    flags = ["--bootstrap", 0, "--cells", "--law", "unified", "--where", "num_facts=4", "--reduce", "mean"]
    assert "predicted" in run("fit", "runs/tiny", *flags)[1]


def test_damage_is_named_set_aside_and_run_again(run, home):
    shutil.copytree(home / "runs" / "tiny", home / "runs" / "hurt")
    victim = next((home / "runs" / "hurt" / "runs").iterdir()) / "record.json"
    victim.write_text(victim.read_text()[:100])
    code, out, _ = run("store", "verify", "runs/hurt")
    assert code == 1
    assert victim.parent.name in out
    assert "set aside" in out
    code, out, _ = run("sweep", "examples/tiny_grid.toml", "--store", "runs/hurt", "--workers", 1, "--json")
    assert {"done": 1, "skipped": 23, "failed": 0}.items() <= json.loads(out).items()
    original = json.loads((home / "runs" / "tiny" / "runs" / victim.parent.name / "record.json").read_text())
    again = json.loads(victim.read_text())
    for record in (original, again):
        del record["seconds"], record["digest"]
    assert again == original


def test_a_newer_record_stops_the_sweep_with_a_clear_word(run, home):
    shutil.copytree(home / "runs" / "tiny", home / "runs" / "newer")
    path = next((home / "runs" / "newer" / "runs").iterdir()) / "record.json"
    path.write_bytes(record_text(json.loads(path.read_text()) | {"schema_version": 4}))
    code, _, err = run("sweep", "examples/tiny_grid.toml", "--store", "runs/newer", "--json")
    assert code == 2
    assert "schema_version=4" in err
    assert "Upgrade" in err
    code, out, _ = run("store", "verify", "runs/newer")
    assert code == 0
    assert "23 done" in out
    assert "1 that need another version: clean" in out
    assert path.exists()
    assert "reads schema 4" in run("store", "list", "runs/newer")[1]


def test_mistakes_are_answered_in_one_paragraph(run, tmp_path):
    refused(run("sweep", "nowhere.toml", "--store", "runs/x"), "nowhere.toml")
    refused(run("sweep", "examples/tiny_grid.toml", "--store", "examples"), "not a store")
    refused(run("sweep", "examples/tiny_grid.toml", "--store", "runs/x", "--workers", -1), "workers=-1")
    refused(run("sweep", "examples/tiny_grid.toml", "--store", "runs/x", "--lease-seconds", 0), "lease_seconds=0")
    refused(run("sweep"))
    empty = tmp_path / "empty.toml"
    empty.write_text('skip = ["true_ == 1"]')
    refused(run("sweep", empty, "--store", "runs/x"), "true_")
    empty.write_text(GRID.read_text().replace('"state_dim > embed_dim"', '"state_dim > 0"'))
    refused(run("sweep", empty, "--store", "runs/x"), "leave none")
    refused(run("store", "list", "nowhere"), "nowhere", "recallscope sweep")
    refused(run("store", "list", "runs/tiny", "--where", "state_dm=1"), "state_dim")
    refused(run("store", "list", "runs/tiny", "--sort", "nonsense"), "not a column")
    refused(run("store", "show", "runs/tiny", "zzz"), "zzz")
    refused(run("store", "show", "runs/tiny", ""), "not in")
    refused(run("store", "export", "runs/tiny", "runs.xlsx"), ".csv")
    refused(run("fit", "runs/tiny", "--where", "embed_dim=9999"), "no finished run")
    refused(run("fit", "runs/tiny", "--reduce", "seed"), "--seed")
    refused(run("fit", "runs/tiny", "--law", "unfied"), "unified")
    refused(run("store", "nonsense"))


def test_the_live_grid_fills_in(home):
    cells = read_grid(home / "examples" / "tiny_grid.toml").cells()
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=40)
    view = LiveView(cells, console, "tiny")
    view.begin(make_plan(cells, None))
    view.started(cells[0])
    view.moved(cells[0], 50, 100)
    record = RunStore(home / "runs" / "tiny").get(cells[5].run)
    view.started(cells[5])
    view.finished(cells[5], record)
    view.failed(cells[23], "was killed by SIGKILL")
    view.retried(cells[7], "was killed by SIGSEGV")
    view.tick()
    view.close()
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", console.file.getvalue())
    assert "embed_dim \\ state_dim" in plain
    assert "50%" in plain
    assert f"{record.test_accuracy:.2f}".lstrip("0") in plain
    assert "1 done · 1 running · 1 failed · 21 to do" in plain
    assert "SIGSEGV" in plain
