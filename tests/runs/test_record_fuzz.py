"""Whatever stands in a record file: a clear word, no traceback, and the file is never lost."""

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from made_records import record
from recallscope.cli.main import main
from recallscope.records import NewerRecordError, RecordError, record_text
from recallscope.runs.leases import Failure
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs
from recallscope.runs.upkeep import verify
from recallscope.specs import identity_hash

RECORD = record()
SOUND = record_text(RECORD)
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a real disk's fsync would cost minutes
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@st.composite
def damaged(draw):
    """Noise; a record cut off, with some bytes changed, or with one field replaced by anything at all."""
    kind = draw(st.sampled_from(["noise", "cut", "bytes", "field", "json"]))
    if kind == "noise":
        return draw(st.binary(max_size=200))
    if kind == "cut":
        return SOUND[: draw(st.integers(0, len(SOUND)))]
    if kind == "json":
        return json.dumps(draw(JSON)).encode()
    if kind == "bytes":
        data = bytearray(SOUND)
        for place, value in draw(st.lists(st.tuples(st.integers(0, len(SOUND) - 1), st.integers(0, 255)), max_size=4)):
            data[place] = value
        return bytes(data)
    fields = json.loads(SOUND)
    place = fields
    while True:
        name = draw(st.sampled_from(sorted(place)))
        if isinstance(place[name], dict) and place[name] and draw(st.booleans()):
            place = place[name]
            continue
        place[name] = draw(JSON)
        return json.dumps(fields).encode()


@contextmanager
def new_store():
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as root:
        yield RunStore(Path(root) / "store", create=True)


def contents(store: RunStore) -> list[bytes]:
    return [path.read_bytes() for path in store.root.rglob("*") if path.is_file()]


@given(data=damaged())
@settings(max_examples=150, deadline=None)
def test_no_record_file_whatever_is_lost_or_ends_in_a_traceback(data):
    with new_store() as store:
        store.put(RECORD)
        (store.folder(RECORD.run) / "record.json").write_bytes(data)
        try:
            believed = store.get(RECORD.run)
            assert believed is not None
            assert believed.spec == RECORD.spec
        except NewerRecordError:
            raise AssertionError("one record in many damaged ones has a digest that fits") from None
        except RecordError:
            pass  # said in words; verify repeats them below
        find_runs(store)
        health = verify(store)
        assert health.clean or health.newer or health.faults[0].reason
        assert data in contents(store)


@given(data=damaged())
@settings(max_examples=40, deadline=None)
def test_the_commands_answer_any_damage_with_words(data):
    with new_store() as store:
        store.put(RECORD)
        (store.folder(RECORD.run) / "record.json").write_bytes(data)
        name = str(store.root)
        assert main(["store", "show", name, RECORD.run, "--json"]) in (0, 2)
        assert main(["store", "list", name, "--json"]) == 0
        assert main(["store", "verify", name, "--json"]) in (0, 1)
        assert data in contents(store)


def test_texts_of_a_store_do_not_steer_the_terminal(tmp_path, capsys):
    """An escape sequence may set the clipboard (OSC 52), the title, or hide what was printed."""
    wild = "\x1b]52;c;cm0gLXJm\x07\x9b2J"
    store = RunStore(tmp_path / "store", create=True)
    facts = json.loads(SOUND)
    for part in ("spec", "identity"):
        facts[part]["model"] |= {"kind": wild, wild: wild}
    facts |= {"run": identity_hash("RunSpec", facts["identity"]), "history": [{"step": wild}]}
    for run, name, text in (
        (facts["run"], "record.json", record_text(facts)),
        (facts["run"], "attempts.jsonl", json.dumps({"event": wild, "host": wild}).encode()),
        (
            RECORD.run,
            "failure.json",
            Failure(run=RECORD.run, spec=RECORD.spec, tries=1, reason=wild, stderr=wild, at=0.0)
            .model_dump_json()
            .encode(),
        ),
    ):
        store.folder(run).mkdir(exist_ok=True)
        (store.folder(run) / name).write_bytes(text)
    for words in (("list",), ("verify", "--dry-run"), ("show", facts["run"]), ("show", RECORD.run)):
        assert main(["store", words[0], str(store.root), *words[1:]]) == 0
        said = capsys.readouterr().out
        assert "\\x1b]52" in said or words[0] == "verify"
        assert not {"\x1b", "\x07", "\x9b"} & {*said}
    assert main(["store", "show", str(store.root), wild]) == 2
    assert "\x1b" not in capsys.readouterr().err


@given(data=st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=40, deadline=None)
def test_other_files_of_a_run_may_be_anything_too(data):
    with new_store() as store:
        folder = store.folder(RECORD.run)
        folder.mkdir()
        for name in ("failure.json", "lease.1", "attempts.jsonl", "checkpoint.safetensors", "weights.safetensors"):
            (folder / name).write_bytes(data)
        find_runs(store)
        assert main(["store", "show", str(store.root), RECORD.run, "--json"]) in (0, 2)
        verify(store)
        store.lease(RECORD.run)
        assert data in contents(store)
