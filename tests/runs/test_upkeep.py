"""Verify finds every kind of damage and spares what is sound; leftovers of finished runs are removed."""

import itertools
import json
import os
import threading

import pytest
from synthetic_runs import fill, record, spec

from recallscope.runs.grid import Cell
from recallscope.runs.index import rebuild_index
from recallscope.runs.leases import Failure
from recallscope.runs.plan import make_plan
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs
from recallscope.runs.upkeep import safetensors_fault, verify


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "store", create=True)


def safetensors(data=b"12345678"):
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return len(header).to_bytes(8, "little") + header + data


def files(root):
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_a_sound_store_is_clean_and_untouched(store):
    fill(store, 5)
    rebuild_index(store)
    before = files(store.root)
    health = verify(store)
    assert health.clean
    assert health.done == 5
    assert not health.index_was_wrong
    assert files(store.root) == before


def test_every_kind_of_damage_is_found_named_and_set_aside(store):
    made = fill(store, 6)
    rebuild_index(store)
    folders = [store.folder(found.run) for found in made]
    (folders[0] / "record.json").write_text("{")
    (folders[1] / "record.json").write_bytes(b"")
    (folders[2] / ".record.json.0123456789ab.tmp").write_text("half")
    (folders[3] / "weights.safetensors").write_bytes(safetensors()[:-3])
    (folders[4] / "failure.json").write_text("no note")
    (folders[4] / "record.json").unlink()
    odd = store.runs / spec(seed=77).content_hash()
    odd.write_text("a file, not a folder")
    looked = verify(store, move=False)
    assert len(looked.faults) == 6
    assert all(fault.moved_to is None for fault in looked.faults)
    health = verify(store)
    assert {fault.path for fault in health.faults} == {fault.path for fault in looked.faults}
    assert all((store.root / fault.moved_to).exists() for fault in health.faults)
    assert health.done == 3
    assert not health.clean
    again = verify(store)
    assert again.clean
    assert again.set_aside_before == 6
    assert len(find_runs(store)) == 3


def test_running_and_failed_runs_are_no_damage(store):
    running, failed = spec(seed=1), spec(seed=2)
    lease = store.lease(running.content_hash())
    (store.folder(running.content_hash()) / ".record.json.0123456789ab.tmp").write_text("being written")
    store.put_failure(Failure(run=failed.content_hash(), spec=failed, tries=3, reason="died", stderr="", at=0.0))
    health = verify(store)
    assert health.clean
    assert (health.running, health.failed) == (1, 1)
    lease.release()
    assert not verify(store).clean


@pytest.mark.parametrize(
    ("data", "fine"),
    [
        (safetensors(), True),
        (safetensors(b""), False),
        (safetensors(b"123456789"), False),
        (b"", False),
        (b"\xff" * 8, False),
        (b"\x02\x00\x00\x00\x00\x00\x00\x00{}", True),
        (b"\x02\x00\x00\x00\x00\x00\x00\x00[]", False),
        (b"\x04\x00\x00\x00\x00\x00\x00\x00null", False),
    ],
)
def test_cut_off_tensors_are_told_from_whole_ones(tmp_path, data, fine):
    (tmp_path / "x").write_bytes(data)
    assert (safetensors_fault(tmp_path / "x") is None) == fine


def test_a_look_writes_nothing(store):
    """Neither a clock beside a lease, nor an index, nor what is damaged: so a store that may only be read will do."""
    fill(store, 2)
    rebuild_index(store)
    (store.root / "index.sqlite").write_bytes(b"nonsense")
    folder = store.folder(spec(seed=9).content_hash())
    folder.mkdir()
    (folder / "lease.1").write_text('{"holder": {"machine": "m", "pid": 1, "born": ""}, "lease_seconds": 60.0}')
    before = {path: path.stat().st_mtime_ns for path in store.root.rglob("*")}
    health = verify(store, move=False)
    assert (health.done, health.running, health.index_was_wrong) == (2, 1, True)
    assert {path: path.stat().st_mtime_ns for path in store.root.rglob("*")} == before


def test_a_checkpoint_replaced_while_it_is_judged_is_not_moved(store, monkeypatch):
    """A sweep renames a new one over it between two looks of `verify`: the sound one stays."""
    from recallscope.runs import upkeep

    run = spec(seed=1).content_hash()
    store.lease(run)
    path = store.folder(run) / "checkpoint.safetensors"
    path.write_bytes(safetensors()[:-3])
    judge, judged = upkeep._tensors_fault, []

    def replaced_meanwhile(file, digest):
        wrong = judge(file, digest)
        judged.append(wrong)
        if len(judged) == 1:
            (path.parent / "new").write_bytes(safetensors())
            os.replace(path.parent / "new", path)
        return wrong

    monkeypatch.setattr(upkeep, "_tensors_fault", replaced_meanwhile)
    assert verify(store).clean
    assert [wrong is None for wrong in judged] == [False, True]
    assert path.read_bytes() == safetensors()


def test_verify_beside_a_writer_moves_nothing_that_is_sound(store):
    """Checkpoints of two lengths replace one another as fast as can be: sizes and contents of two would clash."""
    run = spec(seed=1).content_hash()
    lease = store.lease(run)
    path, stop = store.folder(run) / "checkpoint.safetensors", threading.Event()
    texts = [safetensors(), b"\x02\x00\x00\x00\x00\x00\x00\x00{}"]
    path.write_bytes(texts[0])

    def write():
        for number in itertools.count():
            if stop.is_set():
                break
            (path.parent / "new").write_bytes(texts[number % 2])
            os.replace(path.parent / "new", path)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        faults = [fault for _ in range(300) for fault in verify(store, move=False).faults]
    finally:
        stop.set()
        writer.join()
    lease.release()
    assert faults == []


@pytest.mark.parametrize("name", ["record.json", "failure.json", "weights.safetensors", "checkpoint.safetensors"])
def test_a_folder_in_place_of_a_file_is_damage_and_stops_nobody(store, name):
    found, other = fill(store, 2)
    (store.folder(found.run) / "record.json").unlink()
    (store.folder(found.run) / name / "inside").mkdir(parents=True)
    assert other.run in {row["run"] for row in find_runs(store)}
    plan = make_plan([Cell.of(found.spec), Cell.of(other.spec)], store, look_only=True)
    assert [cell.run for cell in plan.missing] == [found.run]
    (fault,) = verify(store).faults
    assert fault.path == f"runs/{found.run}/{name}"
    assert store.lease(found.run)


def test_leftovers_are_removed_unless_someone_works_on_the_run(store):
    """Weights may be added to a run that has a record."""
    done = record(seed=1)
    store.put(done)
    lease = store.lease(done.run, weights=True)
    (store.folder(done.run) / "checkpoint.safetensors").write_bytes(safetensors())
    store.tidy_leftovers(done.run)
    assert lease.renew()
    lease.release()
    store.tidy_leftovers(done.run)
    assert os.listdir(store.folder(done.run)) == ["record.json"]
