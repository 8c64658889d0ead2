"""Records of unknown architectures, newer versions and unknown fields are listed, filtered, exported, and kept."""

import csv
import json

import pytest

from made_records import record, spec
from recallscope.cli.main import main
from recallscope.records import NewerRecordError, record_text
from recallscope.runs.grid import Cell
from recallscope.runs.index import rebuild_index
from recallscope.runs.leases import Failure
from recallscope.runs.plan import make_plan
from recallscope.runs.store import RunStore
from recallscope.runs.table import export_rows, find_runs, parse_conditions
from recallscope.runs.upkeep import verify
from recallscope.specs import STORED_KINDS, ModelSpec, RunSpec, architecture, find_architecture, identity_hash


def put_facts(store, facts):
    folder = store.runs / facts["run"]
    folder.mkdir()
    (folder / "record.json").write_bytes(record_text(facts))
    return folder / "record.json"


def from_mars():
    """A record that another installation wrote for an architecture of its own."""
    facts = record(seed=1).model_dump(mode="json")
    fields = {"kind": "from_mars", "legs": 3, "Legs": 4, "run": "x"}
    facts["spec"]["model"] = facts["identity"]["model"] = fields
    facts["run"] = identity_hash("RunSpec", facts["identity"])
    return facts


def newer():
    """The next schema, whose facts may stand anywhere."""
    facts = record(seed=2).model_dump(mode="json")
    return facts | {"schema_version": 4, "test_accuracy": {"mean": 0.5}, "novelty": [1]}


def with_extra_field():
    """Today's schema; a model's field that this version does not know, not at its default."""
    facts = record(seed=3).model_dump(mode="json")
    facts["spec"]["model"]["dropout"] = facts["identity"]["model"]["dropout"] = 0.5
    facts["run"] = identity_hash("RunSpec", facts["identity"])
    return facts


@pytest.fixture
def store(tmp_path):
    store = RunStore(tmp_path / "store", create=True)
    store.put(record(seed=0))
    for facts in (from_mars(), newer(), with_extra_field()):
        put_facts(store, facts)
    return store


def files(root):
    return {str(path): path.read_bytes() for path in root.rglob("*.json")}


def test_all_are_listed_and_what_they_need_is_named(store):
    needs = {row["run"]: row["needs"] for row in find_runs(store)}
    assert needs == {
        record(seed=0).run: None,
        from_mars()["run"]: "architecture='from_mars'",
        newer()["run"]: "a recallscope that reads schema 4",
        with_extra_field()["run"]: "field dropout",
    }


def test_their_fields_are_columns_and_can_be_asked_for(store):
    def found(*conditions):
        return {row["run"] for row in find_runs(store, parse_conditions(conditions))}

    assert (
        found("legs=3") == found("model=from_mars") == found("Legs>3") == found("model.run=x") == {from_mars()["run"]}
    )
    assert found("dropout>0.1") == {with_extra_field()["run"]}
    assert found("legs>3") == set()
    assert found("seed<=1") == {record(seed=0).run, from_mars()["run"]}
    with pytest.raises(ValueError, match="legs"):
        found("lags=3")


def test_they_are_exported(store, tmp_path):
    export_rows(find_runs(store), tmp_path / "runs.csv")
    with open(tmp_path / "runs.csv", newline="") as file:
        rows = {row["run"]: row for row in csv.DictReader(file)}
    assert len(rows) == 4
    assert rows[from_mars()["run"]]["legs"] == "3"
    assert rows[newer()["run"]]["test_accuracy"] == ""


def test_nobody_moves_or_changes_them(store, capsys):
    before = files(store.root)
    health = verify(store)
    assert (health.clean, health.done, len(health.newer)) == (True, 1, 3)
    assert any("Upgrade" in text for text in health.newer)
    rebuild_index(store)
    assert [found.run for found in store.records()] == [record(seed=0).run]
    for name in store.names():
        assert main(["store", "show", str(store.root), name]) == 0
    assert main(["store", "list", str(store.root)]) == 0
    assert files(store.root) == before
    assert "from_mars" in capsys.readouterr().out


def test_a_newer_record_is_not_trained_over(store):
    cell, again, before = Cell.of(spec(seed=2)), record(seed=2), files(store.root)
    for use in (lambda: make_plan([cell], store), lambda: store.get_sound(cell.run), lambda: store.put(again)):
        with pytest.raises(NewerRecordError, match=r"schema_version=4.*newer.*Upgrade"):
            use()
    assert files(store.root) == before


def test_an_unknown_field_at_its_default_is_the_same_run(store):
    """A later version added the field; its default is the old behaviour, so the run and its name are the same."""
    facts = record(seed=4).model_dump(mode="json")
    facts["spec"]["model"]["dropout"] = 0.0
    put_facts(store, facts)
    assert store.get(facts["run"]).spec == record(seed=4).spec
    assert store.finished(facts["run"])


def test_failures_of_unknown_architectures_are_listed(store):
    failure = Failure(run="0" * 24, spec=from_mars()["spec"], tries=1, reason="died", stderr="", at=0.0)
    store.put_failure(failure)
    assert store.failure("0" * 24) == failure
    (row,) = find_runs(store, parse_conditions(["status=failed"]))
    assert (row["model"], row["legs"], row["needs"]) == ("from_mars", 3, "architecture='from_mars'")
    assert verify(store).failed == 1


@pytest.mark.parametrize(("stored", "kind"), STORED_KINDS.items())
def test_stored_kinds_keep_their_names_and_are_listed_under_todays(tmp_path, stored, kind):
    """A record written before the architecture was renamed: same name, found by today's kind, old kinds refused."""
    sizes = {"embed_dim": 8, "state_dim": 4} | ({"num_heads": 2} if kind == "mamba2" else {})
    run = RunSpec.model_validate({"task": {"vocab_size": 16, "num_facts": 2}, "model": {"kind": kind, **sizes}})
    assert run.identity()["model"]["kind"] == stored
    facts = json.loads(record_text(record(run)))
    assert facts["spec"]["model"]["kind"] == kind
    old = {**facts, "spec": {**facts["spec"], "model": {**facts["spec"]["model"], "kind": stored}}}
    store = RunStore(tmp_path, create=True)
    put_facts(store, json.loads(record_text(old)))
    assert store.finished(run.content_hash())
    assert store.get(run.content_hash()).spec == run
    assert [row["model"] for row in find_runs(store, parse_conditions([f"model={kind}"]))] == [kind]
    with pytest.raises(ValueError, match=f"is called {kind} now"):
        parse_conditions([f"model={stored}"])
    with pytest.raises(ValueError, match=f"is called {kind} now"):
        find_architecture(stored)
    with pytest.raises(ValueError, match="Rename it"):
        architecture(stored)(type("Mine", (ModelSpec,), {"__module__": __name__}))
