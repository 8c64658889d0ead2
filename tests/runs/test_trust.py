"""A store cannot lie: edits are found out, whether of a record, of weights, of a checkpoint or of the index."""

import json
import os
import shutil
import sqlite3

import pytest

from made_records import fill, record, spec
from recallscope.architectures.model import build_model
from recallscope.records import MOST_BYTES, MOST_FIELDS, RecordError, parse_record, read_facts, record_text
from recallscope.runs.grid import Cell
from recallscope.runs.index import INDEX, rebuild_index
from recallscope.runs.plan import make_plan
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs
from recallscope.runs.upkeep import safetensors_fault, verify
from recallscope.train.checkpoint import CheckpointError, Progress, read_checkpoint, write_checkpoint
from recallscope.train.loop import stream
from recallscope.train.weights import write_record, write_weights


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "store", create=True)


def weights_of(run, folder):
    model = build_model(run.model, run.task.vocab_size, stream(run, "weights"))
    write_weights(folder / "weights.safetensors", model, run.task)
    return (folder / "weights.safetensors").read_bytes()


def flip(path, place=-5):
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def edit(path, **fields):
    """Change a record by hand, behind the back of size and time."""
    before = path.stat()
    text = path.read_text()
    for name, (old, new) in fields.items():
        assert text.count(f'"{name}": {old}') == 1
        text = text.replace(f'"{name}": {old}', f'"{name}": {new}')
    path.write_text(text)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_every_field_of_a_record_is_under_its_digest():
    text = record_text(record(accuracy=0.25), "f" * 64)
    assert parse_record(text).test_accuracy == 0.25
    facts = json.loads(text)
    changes = {"seconds": 9.5, "steps": 1, "history": [], "environment": {}, "weights_digest": None, "digest": ""}
    for name, value in (changes | {"new": 1}).items():
        with pytest.raises(RecordError, match="edited since it was written"):
            parse_record(json.dumps(facts | {name: value}))
    parse_record(json.dumps(dict(reversed(facts.items()))))  # the order of fields is no matter


def test_verify_finds_an_edited_accuracy_even_of_the_same_size_and_time(store):
    store.put(record(accuracy=0.25))
    rebuild_index(store)
    path = store.runs / record().run / "record.json"
    edit(path, test_accuracy=(0.25, 0.75))
    health = verify(store, move=False)
    assert [fault.path for fault in health.faults] == [str(path.relative_to(store.root))]
    assert "edited since it was written" in health.faults[0].reason
    assert path.exists()
    plan = make_plan([Cell.of(spec())], store)
    assert "edited" in plan.faults[0].reason  # said, and kept in damaged/, before it is run again
    assert (store.root / plan.faults[0].moved_to).exists()


def test_a_record_without_its_digest_is_damaged_whatever_schema_it_names(store):
    text = record_text(record(accuracy=0.25))
    facts = {name: value for name, value in json.loads(text).items() if name != "digest"}
    for version in (3, 4, 7, 99):
        with pytest.raises(RecordError, match="its digest is missing"):
            read_facts(json.dumps(facts | {"schema_version": version}))
    store.put(record(accuracy=0.25))
    (store.runs / record().run / "record.json").write_text(json.dumps(facts))
    assert not verify(store, move=False).clean


def test_a_record_may_not_have_any_length_or_number_of_fields(store):
    """One of a hundred thousand fields made `store list` fill the memory."""
    facts = json.loads(record_text(record()))
    facts["spec"]["model"] |= {f"field_{number}": number for number in range(MOST_FIELDS)}
    for text, reason in ((record_text(facts), "fields"), (b" " * MOST_BYTES + b"{}", "longer than")):
        store.folder(record().run).mkdir(exist_ok=True)
        (store.folder(record().run) / "record.json").write_bytes(text)
        assert reason in verify(store, move=False).faults[0].reason
        assert [row["status"] for row in find_runs(store)] == ["damaged"]


def test_any_flipped_bit_of_a_record_is_found():
    """Of its schema's number, its digest's name, and everything else; only what changes no value may pass."""
    text, passed = record_text(record(accuracy=0.25)), 0
    for place in range(len(text)):
        for bit in range(8):
            flipped = bytearray(text)
            flipped[place] ^= 1 << bit
            try:
                facts = read_facts(bytes(flipped))
            except RecordError:
                continue
            passed += 1
            assert facts == json.loads(text)
    assert passed < len(text)  # white space, and e for E in numbers


def test_records_of_schema_2_may_have_no_digest_and_are_counted(store):
    for found in fill(store, 3):
        facts = found.model_dump(mode="json") | {"schema_version": 2}
        (store.folder(found.run) / "record.json").write_text(json.dumps(facts))
    store.put(record(seed=1000))
    health = verify(store)
    assert health.clean
    assert (health.done, health.without_digest) == (4, 3)


def test_verify_finds_a_flipped_byte_of_the_weights(store, tmp_path):
    store.put(record(), weights_of(spec(), tmp_path))
    path = store.runs / record().run / "weights.safetensors"
    assert verify(store).clean
    flip(path)
    (fault,) = verify(store).faults
    assert fault.path.endswith("weights.safetensors")
    assert "digest" in fault.reason
    store.put(record(), weights_of(spec(), tmp_path))  # added to the record that is there
    assert verify(store).clean
    flip(path)
    assert not verify(store).clean


def test_a_record_outside_a_store_knows_its_weights(tmp_path):
    weights_of(spec(), tmp_path)
    write_record(tmp_path / "record.json", record())
    digest = json.loads((tmp_path / "record.json").read_text())["weights_digest"]
    assert safetensors_fault(tmp_path / "weights.safetensors", digest) is None
    flip(tmp_path / "weights.safetensors")
    assert safetensors_fault(tmp_path / "weights.safetensors", digest)


def test_any_flipped_byte_of_a_checkpoint_is_found_and_never_resumed_from(store):
    import torch

    run = spec()
    path = store.folder(run.content_hash()) / "checkpoint.safetensors"
    progress = Progress(run=run.content_hash(), identity=run.identity(), tensors={"w": torch.arange(50.0)})
    write_checkpoint(path, progress)
    assert verify(store).clean
    assert read_checkpoint(path, run).tensors["w"].tolist() == list(range(50))
    whole = path.read_bytes()
    for place in range(len(whole)):  # its header is in another order each time: try every place
        flip(path, place)
        assert safetensors_fault(path), place
        with pytest.raises(CheckpointError, match="damaged"):
            read_checkpoint(path, run)
        path.write_bytes(whole)
    flip(path)
    assert not verify(store, move=False).clean


def test_a_row_changed_by_hand_is_not_believed(store):
    made = fill(store, 20)
    rebuild_index(store)
    with sqlite3.connect(store.root / INDEX) as connection:
        connection.execute("UPDATE runs SET row = replace(row, '0.0,', '1.0,'), run = 'x' || run")
    connection.close()
    rows = {row["run"]: row["test_accuracy"] for row in find_runs(store)}
    assert rows == {found.run: found.test_accuracy for found in made}
    assert verify(store, move=False).index_was_wrong
    assert verify(store).index_was_wrong
    assert not verify(store).index_was_wrong
    with sqlite3.connect(store.root / INDEX) as connection:
        connection.execute("UPDATE fields SET fields = replace(fields, 'embed_dim', 'state_dim')")
    connection.close()
    assert {row["embed_dim"] for row in find_runs(store)} == {16, 32, 48, 64}


def test_records_deleted_cut_off_or_edited_are_noticed_on_opening(store):
    for seed in range(5):
        store.put(record(seed=seed, accuracy=0.25))
    rebuild_index(store)
    paths = [store.runs / record(seed=seed).run / "record.json" for seed in range(5)]
    paths[0].unlink()
    paths[1].write_bytes(paths[1].read_bytes()[:-20])
    paths[2].write_text(paths[2].read_text().replace("0.25", "0.75"))
    shutil.rmtree(paths[3].parent)
    found = {row["run"]: (row["status"], row["test_accuracy"]) for row in find_runs(store)}
    assert found == {
        paths[1].parent.name: ("damaged", None),
        paths[2].parent.name: ("damaged", None),
        paths[4].parent.name: ("done", 0.25),
    }


def test_the_index_of_a_copied_store_is_made_anew_once(store, tmp_path):
    fill(store, 130)
    rebuild_index(store)
    shutil.copytree(store.root, tmp_path / "copy")
    for path in (tmp_path / "copy" / "runs").glob("*/record.json"):
        os.utime(path)
    copy = RunStore(tmp_path / "copy")
    before = (copy.root / INDEX).stat().st_mtime_ns
    assert len(find_runs(copy)) == 130
    made = (copy.root / INDEX).stat().st_mtime_ns
    assert made != before
    assert len(find_runs(copy)) == 130
    assert (copy.root / INDEX).stat().st_mtime_ns == made


def test_commands_say_what_they_leave_out(store, run):
    store.put(record(seed=0))
    path = store.runs / record(seed=0).run / "record.json"
    path.write_text(path.read_text() + "more")
    code, out, _ = run("store", "list", store.root)
    assert code == 0
    assert "1 damaged: recallscope store verify" in out
    store.put(record(seed=1))
    picture = store.root.parent / "plot.png"
    for command, *flags in (["fit"], ["plot", "--x", "seed", "--y", "test_accuracy", "--figure", picture]):
        code, _, err = run(command, store.root, *flags)
        assert (code, "left out 1 damaged record," in err) == (0, True)
