"""Stores of the first schema are read and resumed as they are, and migrated without loss, killed or not."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_runs import record, spec
from test_driver import PuppetEngine, drive
from tiny_sweeps import tiny_grid

from recallscope.cli.main import main
from recallscope.records import first_name, read_facts
from recallscope.runs import (
    Failure,
    RunStore,
    StoreError,
    find_name,
    find_runs,
    make_plan,
    migrate,
    migrate_file,
    rebuild_index,
    verify,
)
from recallscope.runs.leases import try_lease


def first_schema(found):
    """A record as the first version wrote it."""
    fields = found.model_dump(mode="json")
    spec = fields["spec"]
    kept = {
        name: value for name, value in fields.items() if name not in ("identity", "formerly", "schema_version", "run")
    }
    return {"schema_version": 1, "run": first_name(spec), **kept}


def put_old(store, found, **files):
    facts = first_schema(found)
    folder = store.runs / facts["run"]
    folder.mkdir(parents=True)
    (folder / "record.json").write_text(json.dumps(facts, indent=1) + "\n")
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return facts["run"]


@pytest.fixture
def store(tmp_path):
    RunStore(tmp_path / "store", create=True)
    marker = {"format": "recallscope-store", "version": 1, "id": "0" * 32}
    (tmp_path / "store" / "store.json").write_text(json.dumps(marker))
    return RunStore(tmp_path / "store")


def content(root):
    """All files but the index, by name."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name not in ("index.sqlite", "store.json")
    }


def test_old_runs_are_found_by_either_name(store):
    found = record(seed=3)
    old = put_old(store, found, weights__safetensors="tensors")
    assert old != found.run
    for name in (old, found.run):
        got = store.get(name)
        assert (got.run, got.formerly, got.spec) == (found.run, [old], found.spec)
    assert store.folder(found.run) == store.runs / old
    assert store.finished(found.run, weights=True)
    assert store.names() == store.finished_names() == [found.run]
    (row,) = find_runs(store)
    assert (row["run"], row["seed"]) == (found.run, 3)
    assert find_name(store, old[:9]) == find_name(store, found.run[:9]) == found.run
    assert [kept.run for kept in store.records()] == [found.run]


def test_a_sweep_on_an_old_store_starts_nothing_that_is_done(store):
    cells = tiny_grid(seeds=2).cells()
    for cell in cells[:-1]:
        put_old(store, record(cell.spec))
    before = content(store.root)
    engine = PuppetEngine(store)
    outcome = drive(store, engine, cells)
    assert (outcome.done, outcome.skipped) == (1, 9)
    assert engine.started == [cells[-1].run]
    assert before.items() <= content(store.root).items()
    assert len(find_runs(store)) == 10
    assert verify(store).clean
    again = PuppetEngine(store)
    assert drive(RunStore(store.root), again, cells).skipped == 10
    assert again.started == []


def test_failures_of_an_old_store_are_respected_and_may_be_tried_again(store):
    (cell, *_) = tiny_grid(seeds=1).cells()
    old = first_name(cell.spec.model_dump(mode="json"))
    store.put_failure(Failure(run=old, spec=cell.spec, tries=3, reason="died", stderr="", at=0.0))
    assert make_plan([cell], store).failed == [cell]
    (row,) = find_runs(store)
    assert (row["run"], row["status"]) == (cell.run, "failed")
    assert drive(store, PuppetEngine(store), [cell], retry_failed=True).done == 1
    assert [row["status"] for row in find_runs(store)] == ["done"]


def test_weights_added_to_an_old_run_come_with_the_record_that_belongs_to_them(store):
    """Trained again under today's name the random numbers differ, and so does the result."""
    first, again = record(seed=1, accuracy=0.5), record(seed=1, accuracy=0.6)
    old = put_old(store, first)
    assert store.put(again, weights=b"tensors")
    got = store.get(again.run)
    assert (got.test_accuracy, got.formerly) == (0.6, [old])
    assert store.finished(again.run, weights=True)
    assert [read_facts(path.read_bytes())["test_accuracy"] for path in store.root.glob("damaged/*/record.json")] == [
        0.5
    ]


def test_migrating_renames_and_loses_nothing(store):
    made = [record(seed=seed) for seed in range(4)]
    old = [put_old(store, found, weights__safetensors=f"w{found.spec.seed}") for found in made[:3]]
    store.put(made[3])
    (store.root / "inside").mkdir()
    (store.root / "inside" / f"{old[0]}.json").write_text("scores")
    rows = find_runs(store)
    before = content(store.root)
    planned = migrate(store, dry_run=True)
    assert content(store.root) == before
    done = migrate(store)
    assert done == planned
    assert sorted(done.renamed) == sorted((name, found.run) for name, found in zip(old, made[:3], strict=True))
    assert done.left == []
    again = RunStore(store.root)
    assert again.marker["version"] == 2
    assert again.folders() == sorted(found.run for found in made)
    for name, found in zip(old, made[:3], strict=True):
        facts = again.facts(found.run)
        assert (facts["schema_version"], facts["formerly"]) == (2, [name])
        assert (again.folder(found.run) / "weights.safetensors").read_text() == f"w{found.spec.seed}"
        assert find_name(again, name) == find_name(again, name[:10]) == found.run
    assert (store.root / "inside" / f"{made[0].run}.json").read_text() == "scores"
    assert find_runs(again) == rows
    assert not [fault for fault in verify(again, move=False).faults if "weights" not in fault.path]
    assert migrate(again).renamed == []
    assert main(["store", "show", str(store.root), old[0], "--json"]) == 0


KILLED = """
import os, sys
from pathlib import Path
calls = 0
def counted(function):
    def call(*arguments, **options):
        global calls
        calls += 1
        if calls == int(sys.argv[2]):
            os._exit(9)
        return function(*arguments, **options)
    return call
from recallscope.runs import RunStore, migrate
for name in ("rename", "replace", "unlink", "rmdir", "mkdir", "fsync"):
    setattr(os, name, counted(getattr(os, name)))
migrate(RunStore(Path(sys.argv[1])))
"""


def test_a_migration_killed_at_any_step_is_finished_by_the_next(store, tmp_path):
    made = [record(seed=seed) for seed in range(2)]
    old = [put_old(store, found, weights__safetensors="w", attempts__jsonl="{}\n") for found in made]
    rebuild_index(store)
    whole = tmp_path / "whole"
    shutil.copytree(store.root, whole)
    migrate(RunStore(whole))
    steps = 0
    for step in range(1, 100):
        root = tmp_path / f"killed{step}"
        shutil.copytree(store.root, root)
        ended = subprocess.run([sys.executable, "-c", KILLED, str(root), str(step)], check=False).returncode
        half = RunStore(root)
        assert [row["run"] for row in find_runs(half)] == sorted(found.run for found in made), step
        assert all(half.finished(found.run, weights=False) for found in made), step
        assert all(find_name(half, name) for name in old), step
        migrate(RunStore(root))
        left = {name: data for name, data in content(root).items() if not name.endswith(".tmp")}
        assert left == content(whole), step
        shutil.rmtree(root)
        if ended == 0:
            break
        assert ended == 9
        steps += 1
    assert steps > 15


def test_migrate_leaves_and_names_what_it_cannot_read(store):
    """An architecture that is not here, damage, and unfinished runs stay as they are; migrate says so."""
    strange = first_schema(record(seed=1))
    strange["spec"]["model"] = {"kind": "from_mars", "legs": 3}
    strange["run"] = first_name(strange["spec"])
    damaged, begun = first_schema(record(seed=2))["run"], first_schema(record(seed=3))["run"]
    for name, file, text in (
        (strange["run"], "record.json", json.dumps(strange)),
        (damaged, "record.json", "{"),
        (begun, "checkpoint.safetensors", "x"),
    ):
        (store.runs / name).mkdir()
        (store.runs / name / file).write_text(text)
    fine = put_old(store, record(seed=4))
    before = content(store.root)
    done = migrate(store)
    assert [name for name, _ in done.renamed] == [fine]
    reasons = dict(done.left)
    assert "from_mars" in reasons[strange["run"]]
    assert "JSON" in reasons[damaged]
    assert "checkpoint cannot be continued" in reasons[begun]
    after = content(store.root)
    assert {name: data for name, data in before.items() if fine not in name}.items() <= after.items()
    assert RunStore(store.root).marker["version"] == 1  # the strange one may be understood one day
    found = {row["run"]: (row["status"], row["model"]) for row in find_runs(RunStore(store.root))}
    assert found.pop(damaged) == ("damaged", None)
    assert set(found.values()) == {("done", "from_mars"), ("done", "linear")}


def test_migrate_waits_until_nobody_works(store):
    put_old(store, record())
    lease = try_lease(store.home(spec(seed=9).content_hash()))
    with pytest.raises(StoreError, match="being worked on"):
        migrate(store)
    lease.release()
    assert len(migrate(store).renamed) == 1


def test_a_record_outside_a_store_is_migrated_in_its_place(tmp_path, capsys):
    found = record(seed=5)
    path = tmp_path / "record.json"
    path.write_text(json.dumps(first_schema(found) | {"unknown": 1}))
    assert main(["store", "migrate", str(path), "--json"]) == 0
    (renamed,) = json.loads(capsys.readouterr().out)["renamed"]
    facts = read_facts(path.read_bytes())
    assert renamed == {"formerly": first_schema(found)["run"], "run": found.run}
    assert (facts["run"], facts["formerly"], facts["unknown"]) == (found.run, [renamed["formerly"]], 1)
    assert migrate_file(path).renamed == []


def test_a_store_of_today_is_never_searched_for_former_names(tmp_path, monkeypatch):
    store = RunStore(tmp_path / "store", create=True)
    found = record()
    store.put(found)

    def refuse(*_):
        raise AssertionError("searched")

    monkeypatch.setattr("recallscope.runs.store.name_in", refuse)
    assert store.get(found.run) == found
    assert store.get("0" * 24) is None
    assert store.names() == [found.run]


def test_the_papers_runs_are_those_its_grids_ask_for():
    """The first 328 runs of results/paper were migrated: they have their names of today, and know their former ones."""
    store = RunStore(Path(__file__).resolve().parents[2] / "results" / "paper")
    assert store.marker["version"] == 2
    records = list(store.records())
    assert len(records) == len(store.folders())
    migrated = [record for record in records if record.formerly]
    assert len(migrated) == 328
    assert all(record.formerly == [first_name(record.spec.model_dump(mode="json"))] for record in migrated)
    inside = os.listdir(store.root / "inside")
    assert sum(name.endswith(".npz") for name in inside) == 3
    assert {name.split(".")[0].removesuffix("-ages") for name in inside} <= set(store.names())
