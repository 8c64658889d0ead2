"""The folder is the truth: what is put in comes out, what is damaged is set aside, what is newer is refused."""

import json

import pytest
from synthetic_runs import record, spec
from tiny_sweeps import tiny_run

from recallscope.records import RecordError, record_text
from recallscope.runs.leases import Failure, note_attempt, read_attempts
from recallscope.runs.store import RunStore, StoreError
from recallscope.runs.worker import do_run


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "store", create=True)


def path_of(store, found):
    return store.folder(found.run) / "record.json"


def test_what_is_put_in_comes_out(store):
    found = record()
    assert store.get(found.run) is None
    assert store.put(found, weights=b"tensors")
    assert store.get(found.run) == found
    assert (store.folder(found.run) / "weights.safetensors").read_bytes() == b"tensors"
    assert list(store.records()) == [found]
    assert store.names() == [found.run]


def test_the_first_result_stays(store):
    first, second = record(accuracy=0.5), record(accuracy=0.6)
    assert store.put(first)
    assert not store.put(second)
    assert store.get(first.run) == first


def test_finishing_removes_what_only_a_running_run_needs(store):
    found = record()
    lease = store.lease(found.run)
    (store.folder(found.run) / "checkpoint.safetensors").write_bytes(b"x")
    store.put(found)
    assert [path.name for path in store.folder(found.run).iterdir()] == ["record.json"]
    assert store.lease(found.run) is None
    assert not lease.renew()


def test_weights_can_be_asked_for_later(store):
    found = record()
    store.put(found)
    assert store.finished(found.run)
    assert not store.finished(found.run, weights=True)
    assert store.lease(found.run, weights=True) is not None
    assert not store.put(found, weights=b"tensors")
    assert store.finished(found.run, weights=True)


def test_weights_of_another_result_come_with_the_record_that_belongs_to_them(store):
    """Trained again on another processor, or with other random numbers, a run may end with another accuracy."""
    first, again = record(accuracy=0.5), record(accuracy=0.6)
    store.put(first)
    assert store.put(again, weights=b"tensors")
    assert store.get(again.run) == again
    (earlier,) = store.root.glob("damaged/*/record.json")
    assert json.loads(earlier.read_bytes())["test_accuracy"] == 0.5


def test_a_name_that_a_run_had_before_is_read_and_ignored(store):
    """The field `formerly` of early records."""
    found = record()
    store.put(found)
    facts = {name: value for name, value in store.facts(found.run).items() if name != "digest"}
    path_of(store, found).write_bytes(record_text(facts | {"formerly": ["0" * 24]}))
    assert store.get(found.run) == found


@pytest.mark.parametrize(
    "damage",
    ["", "{", "[]", "null", '{"schema_version": 1}', "\x00\xff", '{"schema_version": true}', '{"schema_version": 0}'],
)
def test_damage_is_set_aside_with_a_reason_and_never_deleted(store, damage):
    found = record()
    store.put(found)
    path_of(store, found).write_text(damage)
    with pytest.raises(RecordError):
        store.get(found.run)
    kept, fault = store.get_sound(found.run)
    assert kept is None
    assert (store.root / fault.moved_to).read_text() == damage
    note = json.loads((store.root / fault.moved_to).with_name("note.json").read_text())
    assert note["reason"] == fault.reason
    assert note["file"] == fault.path
    assert store.get_sound(found.run) == (None, None)
    assert store.put(found)


def test_a_record_in_the_folder_of_another_is_not_believed(store):
    found, other = record(seed=0), record(seed=1)
    store.put(found)
    store.put(other)
    path_of(store, other).write_bytes(path_of(store, found).read_bytes())
    with pytest.raises(RecordError, match="in the folder of another"):
        store.get(other.run)


def test_a_folder_that_is_no_store_is_told_from_one(tmp_path, store):
    with pytest.raises(StoreError, match=r"no store\.json"):
        RunStore(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file"):
        RunStore(tmp_path / "file", create=True)
    with pytest.raises(StoreError, match="holds other files"):
        RunStore(tmp_path, create=True)
    assert RunStore(store.root, create=True).marker == store.marker
    (store.root / "store.json").write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        RunStore(store.root)
    (store.root / "store.json").write_text('{"format": "recallscope-store", "version": 9}')
    with pytest.raises(StoreError, match="version 9"):
        RunStore(store.root)


def test_half_written_files_of_a_killed_predecessor_are_set_aside_by_the_next(store):
    run = spec().content_hash()
    folder = store.folder(run)
    folder.mkdir()
    (folder / ".record.json.0123456789ab.tmp").write_text("half")
    assert store.lease(run) is not None
    assert not (folder / ".record.json.0123456789ab.tmp").exists()
    assert [path.read_text() for path in store.root.glob("damaged/*/.record*")] == ["half"]


def test_failures_and_tries_are_remembered(store):
    run = spec()
    name = run.content_hash()
    store.folder(name).mkdir()
    note_attempt(store.folder(name), "started")
    note_attempt(store.folder(name), "finished")
    with open(store.folder(name) / "attempts.jsonl", "a") as log:
        log.write('{"at": 1, "ev')  # cut off
    assert [entry["event"] for entry in read_attempts(store.folder(name))] == ["started", "finished"]
    failure = Failure(run=name, spec=run, tries=3, reason="was killed by SIGKILL", stderr="oh", at=1.0)
    store.put_failure(failure)
    assert store.failure(name) == failure
    (store.folder(name) / "failure.json").write_text("{}")
    assert store.failure(name) is None
    assert len(list(store.root.glob("damaged/*/failure.json"))) == 1


def test_a_worker_sets_a_checkpoint_aside_that_it_cannot_resume_and_begins_anew(store):
    run = tiny_run()
    checkpoint = store.folder(run.content_hash()) / "checkpoint.safetensors"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"written by nobody")
    done, _ = do_run(run, store=store, device="cpu", weights=False)
    assert done.run == run.content_hash()
    (aside,) = store.root.glob("damaged/*/checkpoint.safetensors")
    assert aside.read_bytes() == b"written by nobody"
    (entry,) = read_attempts(checkpoint.parent)
    assert entry["event"] == "checkpoint set aside"
    assert "is damaged" in entry["reason"]
