"""What the page is told is what the commands print."""

import csv
import io
import json

import pytest
from explored import made_up

import recallscope as rs
from recallscope.faults import finite
from recallscope.records import RunRecord
from recallscope.runs.store import RunStore
from recallscope.web import predict, studies
from recallscope.web.runs import Watch

SIZES = {"vocab_size": 512, "num_facts": 16, "embed_dim": 64, "state_dim": 16}


def parts(client, **fields):
    """The parts of an answer by name; of maps the finest, of curves all."""
    response = client.get("/api/fit", params={"model": "mamba", **fields})
    assert response.status_code == 200, response.text
    found, curves = {}, {}
    for line in response.text.splitlines():
        part = json.loads(line)
        found |= part
        if "curve" in part:
            curves[part["curve"]["name"]] = part["curve"]
    return found | {"curves": curves}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"model": "linear_mamba"},
        {"model": "designed", "task": "ar"},
        {"length": 200, "num_layers": 2},
        {"model": "linear_mamba", "head_pattern": "MHA", "num_heads": 4, "embed_dim": 60, "state_dim": 4},
    ],
)
def test_the_number_is_that_of_predict(fields, store_set, run):
    asked = {**SIZES, "model": "mamba", **fields}
    first = finite(next(predict.fit_parts(predict.PredictQuery.of(asked), store_set)))
    if asked["model"] == "designed":
        asked = {**asked, "model": "linear_mamba", "designed": ""}
    flags = [word for name, value in asked.items() for word in (f"--{name.replace('_', '-')}", str(value)) if word]
    printed = json.loads(run("predict", *flags, "--json")[1])
    assert first["headline"] == printed["headline"]


def test_the_map_the_curves_and_the_frontier_agree_with_the_number(client):
    found = parts(client, **SIZES)
    chart, p = found["map"], found["headline"]["probability"]
    assert chart["finest"]
    assert len(chart["embed_dim"]) == len(chart["state_dim"]) == predict.SIDE
    here = chart["p"][chart["embed_dim"].index(64)][chart["state_dim"].index(16)]
    assert here == pytest.approx(p, abs=1e-6)
    for name in ("vocab_size", "num_facts", "length", "embed_dim", "state_dim", "num_layers"):
        curve = found["curves"][name]
        assert curve["p"][curve["x"].index(curve["at"])] == pytest.approx(p, abs=1e-6), name
    points = found["frontier"]["frontier"]
    assert points
    assert all(point["probability"] >= 0.99 for point in points)


def test_measured_cells_are_those_of_the_store(client, store_set):
    found = predict.measured(predict.PredictQuery(), store_set)
    assert len(found) == 12
    record = store_set.stores[0].get(found[0]["run"])
    assert (record.spec.model.embed_dim, record.spec.model.state_dim) == (found[0]["embed_dim"], found[0]["state_dim"])
    assert found[0]["accuracy"] == record.test_accuracy
    assert predict.measured(predict.PredictQuery(vocab_size=128), store_set) == []


def test_a_question_that_takes_too_long_says_so_and_ends(store_set, monkeypatch):
    monkeypatch.setattr(predict, "MOST_SECONDS", 0.0)
    found = list(predict.fit_parts(predict.PredictQuery(model="mamba", vocab_size=510), store_set))
    assert "headline" in found[0]
    assert "stopped" in found[-1]
    assert not any("frontier" in part for part in found)


def test_a_map_is_computed_once(monkeypatch):
    question = predict.PredictQuery(model="mamba", vocab_size=508)
    law = predict.find_law("full-unified-mv")
    first = predict._map_of(question, law)
    assert [part for part in first.fill(*predict.STRIDES) if part][-1]["map"]["finest"]
    again = predict._map_of(question.model_copy(update={"embed_dim": 32, "target": 0.5}), law)
    assert again is first
    monkeypatch.setattr(predict, "law_or_nan", lambda *_: pytest.fail("computed again"))
    assert [part for part in again.fill(*predict.STRIDES) if part]


def test_rows_csv_and_one_run_are_those_of_store(client, store_set, run):
    found = client.get("/api/runs").json()
    place = found["columns"].index
    assert len(found["rows"]) == 12
    assert found["alike"]["model"] == "linear_mamba"
    text = client.get("/api/runs.csv", params={"where": "state_dim<=8"}).text
    assert len(list(csv.DictReader(io.StringIO(text)))) == 8
    name = found["rows"][0][place("run")]
    printed = json.loads(run("store", "show", str(store_set.stores[0].root), name, "--json")[1])
    assert client.get("/api/run", params={"run": name[:8]}).json() == printed


def test_a_module_of_ones_own_stands_beside_ours_on_its_task(tmp_path):
    store, model = RunStore(tmp_path / "mine", create=True), rs.user_module("examples/gru.py:Model", width=32)
    for seed, p in enumerate((0.70, 0.72)):
        run = rs.RunSpec(task=rs.MQARSpec(vocab_size=512, num_facts=16), model=model, seed=seed)
        numbers = {"test_accuracy": p, "val_accuracy": p, "test_queries": 16000, "best_step": 1, "steps": 1}
        store.put(RunRecord(spec=run, seconds=1.0, **numbers))
        store.add_state(run.content_hash(), 32)
    cells = ["V 512, N_f 16, D 32, N 8", "V 512, N_f 8, D 16, N 8"]
    (form,) = studies._users_modules(store, cells)
    assert (form["label"], list(form["recall"])) == ("examples/gru.py:Model width=32", cells[:1])
    numbers = form["recall"][cells[0]]
    assert (numbers["mean"], numbers["state_entries"]) == (pytest.approx(0.71), 32)


def test_a_group_is_what_fit_says_of_it(client, store_set, run):
    (group,) = client.get("/api/groups").json()
    assert group["runs"] == 12
    found = client.get("/api/group", params={"group": 0, "law": "unified-mv"}).json()
    printed = json.loads(
        run("fit", str(store_set.stores[0].root), "--law", "unified-mv", "--bootstrap", "0", "--json")[1]
    )
    (same,) = printed["experiments"]
    assert {name: found[name] for name in same} == same
    assert found["laws"][0]["mean_error"] < 1e-9  # the runs were made by that law
    assert len(found["collapse"]["x"]) == 12


def test_a_fact_is_stored_asked_overwritten_and_forgotten(client):
    def ask(steps, key=None):
        return client.post("/api/memory", json={"model": "weights:0", "steps": steps, "ask": key}).json()

    empty = ask([])
    assert empty["facts"] == []
    assert all(x == 0 for row in empty["hashed"] for x in row)
    one = ask([["store", 3, 40], ["store", 5, 50]], 3)
    assert one["answer"]["value"] == 40
    assert one["answer"]["found"]
    assert one["answer"]["top"][0][0] == 40
    assert [fact["right"] for fact in one["facts"]] == [True, True]
    column, row = one["keys"].index(3), one["values"].index(40)
    assert one["decoded"][row][column] > 0.5
    other = ask([["store", 3, 40], ["store", 5, 50], ["overwrite", 3, 41]], 3)
    assert other["answer"]["value"] == 41
    gone = ask([["store", 3, 40], ["store", 5, 50], ["forget", 3]], 3)
    assert not gone["answer"]["found"]
    assert [fact["key"] for fact in gone["facts"]] == [5]
    full = ask([["store", key, 32 + (7 * key) % 32] for key in range(1, 32)])
    assert full["read"]["capacity"] < 31
    assert any(not fact["right"] for fact in full["facts"])


def test_pictures_of_a_circuit(client):
    found = client.get("/api/pictures", params={"model": "circuit:compressive:64:32:16:0"}).json()
    L = len(found["tokens"])
    assert [len(found["attention"]), len(found["attention"][0])] == [L, L]
    assert len(found["operators"]["match"]) == 2 * len(found["operators"]["tokens"])
    assert client.get("/api/pictures", params={"model": "circuit:compressive:64:32:16:1"}).json() != found


def test_a_watch_sees_runs_end(tmp_path):
    store = RunStore(tmp_path / "store", create=True)
    assert Watch(store).look()["done"] == 0
    record = made_up(16, 4)
    lease = store.lease(record.run)
    seen = Watch(store).look()
    assert [one["run"] for one in seen["running"]] == [record.run]
    store.put(record)
    lease.release()
    seen = Watch(store).look()
    assert (seen["done"], seen["running"], seen["latest"]) == (1, [], [record.run])


def test_no_number_is_not_a_number(client):
    """Not-a-number has no place in JSON, and a law may have none to give."""
    response = client.get("/api/fit", params={"model": "mamba", "num_facts": 255, "vocab_size": 512})
    for line in response.text.splitlines():
        json.loads(line, parse_constant=pytest.fail)
