"""plot, fit --figure and store list on any store, as a newcomer tries them."""

import json
import shlex
import xml.etree.ElementTree as ET

import pytest

from commands import refused
from made_records import made
from recallscope.analysis.table import load_runs
from recallscope.runs.grid import Grid
from recallscope.runs.store import RunStore
from recallscope.specs import RunSpec
from recallscope.theory.law import find_law


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Two models, four widths, four states, two seeds; accuracies by a law, one seed a little higher."""
    folder = tmp_path_factory.mktemp("my runs") / "a store"
    store = RunStore(folder, create=True)
    law = find_law("unified")
    base = RunSpec.model_validate(
        {"task": {"vocab_size": 64, "num_facts": 4}, "model": {"embed_dim": 8, "state_dim": 4}}
    )
    axes = {"model": ["linear_mamba", "mamba"], "embed_dim": [8, 16, 32, 64], "state_dim": [2, 4, 8], "seed": [0, 1]}
    for cell in Grid.around(base, axes=axes).cells():
        D, N = cell.spec.model.embed_dim, cell.spec.model.state_dim
        p = float(law(vocab_size=64, num_facts=4, embed_dim=D, state_dim=N))
        store.put(made(cell.spec, min(p + 0.01 * cell.spec.seed, 1.0), seconds=1.5))
    return folder


@pytest.mark.parametrize(
    ("name", "axes"),
    [
        ("plot.png", ["--x", "state_dim", "--y", "test_accuracy", "--color", "model", "--facet", "embed_dim"]),
        ("plot.svg", ["--x", "model", "--y", "seconds"]),
        ("plot.svg", ["--x", "embed_dim", "--y", "model", "--color", "gate"]),
    ],
)
def test_any_two_columns_are_drawn(name, axes, run, store, tmp_path):
    code, out, err = run("plot", store, *axes, "--figure", tmp_path / name)
    assert (code, err) == (0, "")
    assert "48 runs in" in out
    picture = (tmp_path / name).read_bytes()
    if name.endswith("svg"):
        ET.fromstring(picture)
    else:
        assert picture.startswith(b"\x89PNG")
    assert run("plot", store, *axes, "--figure", tmp_path / name)[0] == 0
    assert (tmp_path / name).read_bytes() == picture  # the same runs, the same bytes


def test_the_example_in_the_help_runs(run, store, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [line.strip() for line in run("plot", "--help")[1].splitlines()]
    (example,) = [line for line in lines if line.startswith("recallscope plot STORE")]
    assert run(*(str(store) if word == "STORE" else word for word in example.split()[1:]))[0] == 0
    assert (tmp_path / "plot.png").exists()


def test_seeds_are_points_and_lines_are_their_means(run, store, tmp_path):
    where = ["--where", "model=linear_mamba", "embed_dim=8"]
    out = run("plot", store, "--x", "state_dim", *where, "--figure", tmp_path / "p.png", "--json")[1]
    answer = json.loads(out)
    ((series,),) = [panel["series"] for panel in answer["panels"]]
    assert sorted(series["x"]) == [2, 2, 4, 4, 8, 8]
    assert [x for x, _ in series["means"]] == [2, 4, 8]
    for place, mean in series["means"]:
        seeds = [y for x, y in zip(series["x"], series["y"], strict=True) if x == place]
        assert mean == pytest.approx(sum(seeds) / 2)
    assert answer["also_varying"] == []
    out = run("plot", store, "--x", "state_dim", "--where", "model=linear_mamba", "--figure", tmp_path / "p.png")[1]
    assert "also differ in embed_dim" in out


def test_mistakes_are_answered_before_anything_is_drawn(run, store, tmp_path):
    refused(run("plot", store, "--x", "state_dm", "--figure", tmp_path / "p.png"), "state_dim")
    refused(run("plot", store, "--x", "state_dim", "--color", "modle", "--figure", tmp_path / "p.png"), "model")
    refused(run("plot", store, "--x", "state_dim", "--figure", tmp_path / "p.jpg"), "p.png")
    refused(run("fit", store, "--figure", tmp_path / "f.pdf"), "f.png")
    result = run("plot", store, "--x", "state_dim", "--where", "embed_dim=9", "--figure", tmp_path / "p.png")
    refused(result, "store list")
    advice = shlex.split(result[2].split("recallscope ")[1].split(" shows")[0])
    assert run(*advice)[0] == 0
    assert not list(tmp_path.iterdir())


def test_fit_draws_its_fit(run, store, tmp_path):
    arguments = ["fit", store, "--where", "model=linear_mamba", "--bootstrap", 0, "--law", "unified"]
    code, out, err = run(*arguments, "--figure", tmp_path / "fit.svg")
    assert (code, err) == (0, "")
    assert "1 of 1 groups drawn in" in out
    ET.fromstring((tmp_path / "fit.svg").read_bytes())


def test_list_shows_the_columns_that_differ_and_says_what_is_alike(run, store):
    out = run("store", "list", store, "--where", "embed_dim=8", "model=linear_mamba")[1]
    assert out.splitlines()[0].split() == ["run", "state_dim", "seed", "test_accuracy", "seconds"]
    assert "all: task=mqar vocab_size=64 num_facts=4 length=16 model=linear_mamba embed_dim=8 num_layers=1" in out
    head, *_ = run("store", "list", store)[1].splitlines()
    assert head.split()[:5] == ["run", "model", "embed_dim", "state_dim", "seed"]
    head, *_ = run("store", "list", store, "--limit", 1)[1].splitlines()
    assert "vocab_size" in head  # one run differs from none


def test_list_stops_at_a_table_that_can_be_read_and_json_has_all(run, store, monkeypatch):
    monkeypatch.setattr("recallscope.cli.store.MOST_PRINTED", 10)
    assert "10 runs, and more: --limit 0 shows all" in run("store", "list", store)[1]
    assert run("store", "list", store, "--limit", 0)[1].splitlines()[-1] == "48 runs"
    for arguments, runs, more in (((), 48, False), (("--limit", 0), 48, False), (("--limit", 5), 5, True)):
        answer = json.loads(run("store", "list", store, *arguments, "--json")[1])
        assert (len(answer["runs"]), answer["more"]) == (runs, more)


def test_the_table_has_a_row_per_run_and_whole_numbers_stay_whole_beside_missing_ones(store, tmp_path, run):
    run("store", "pack", store, tmp_path / "packed.jsonl")
    for place in (store, tmp_path / "packed.jsonl"):
        table = load_runs(place, "state_dim<=4")
        assert len(table) == 32
        assert set(table["status"]) == {"done"}
        assert table["embed_dim"].dtype == "int64"
        assert table["conv_width"].dtype in ("int64", "Int64")
        assert table.loc[table["model"] == "linear_mamba", "gate"].isna().all()  # no field of a linear model
        assert table.loc[table["model"] == "mamba", "gate"].dtype == "boolean"
        assert table.groupby("model")["test_accuracy"].mean().notna().all()
    assert load_runs(store, "state_dim>99").columns.tolist()[:2] == ["run", "status"]


def test_a_quiet_sweep_prints_its_answer_only(run, store, tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text(
        "[task]\nvocab_size = 64\nnum_facts = 4\n[axes]\nembed_dim = [8, 16]\nstate_dim = [2, 4]\nseed = [0, 1]\n"
    )
    arguments = ["sweep", grid, "--store", store, "--json"]
    assert "8 done, 0 to do" in run(*arguments)[2]
    code, out, err = run(*arguments, "--quiet")
    assert (code, err, json.loads(out)["skipped"]) == (0, "", 8)
