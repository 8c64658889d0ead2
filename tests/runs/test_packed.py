"""A packed store is read as its folder is, cannot be written to, and one bad line costs no other."""

import json
import os
from pathlib import Path

import pytest

from made_records import record
from recallscope.records import MOST_BYTES, RecordError
from recallscope.runs.driver import run_sweep
from recallscope.runs.grid import Cell
from recallscope.runs.plan import make_plan
from recallscope.runs.store import RunStore, StoreError
from recallscope.runs.table import find_runs
from recallscope.runs.upkeep import pack_store, unpack_store, verify
from recallscope.studies.experiment import experiments
from recallscope.web.runs import Watch

PAPER = Path(__file__).resolve().parents[2] / "results" / "paper"


@pytest.fixture
def folder(tmp_path):
    """Twelve finished runs, in which accuracy depends on D and N."""
    store = RunStore(tmp_path / "folder", create=True)
    for D in (16, 32, 48, 64):
        for N in (4, 8, 16):
            store.put(record(embed_dim=D, state_dim=N, accuracy=1 - 1 / (1 + D * N / 256)))
    return store


@pytest.fixture
def packed(folder, tmp_path):
    assert pack_store(folder, tmp_path / "x.jsonl").runs == 12
    return RunStore(tmp_path / "x.jsonl")


def files(root):
    return {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_unpacking_gives_back_every_byte(folder, packed, tmp_path):
    assert unpack_store(packed, tmp_path / "back").runs == 12
    assert files(tmp_path / "back") == files(folder.root)
    pack_store(RunStore(tmp_path / "back"), tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == packed.root.read_bytes()


def test_what_is_not_packed_is_counted(folder, tmp_path):
    first, second = folder.names()[:2]
    (folder.folder(first) / "weights.safetensors").write_bytes(b"weights")
    (folder.folder(second) / "record.json").write_text("{")
    folder.folder("0" * 24).mkdir()
    copied = pack_store(folder, tmp_path / "x.jsonl")
    assert (copied.runs, copied.weights, copied.unfinished, copied.damaged) == (11, 1, 1, 1)


def test_only_a_packed_store_is_replaced(folder, packed, tmp_path):
    before = packed.root.read_bytes()
    pack_store(folder, packed.root)
    assert packed.root.read_bytes() == before
    (tmp_path / "thesis.txt").write_text("years of work")
    for path in (tmp_path / "thesis.txt", folder.root):
        with pytest.raises(StoreError, match="not a packed store"):
            pack_store(folder, path)
        with pytest.raises(StoreError, match="not an empty folder"):
            unpack_store(packed, path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    "arguments",
    [
        ("store", "list", "STORE", "--json"),
        ("store", "list", "STORE", "--where", "state_dim<=8", "--sort=-test_accuracy"),
        ("store", "verify", "STORE"),
        ("fit", "STORE", "--json"),
        ("reproduce", "all", "--dry-run", "--scale", "quick", "--store", "STORE"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_commands_print_the_same_for_folder_and_packed_file(run, folder, packed, arguments):
    def answer(store):
        code, out, err = run(*(str(store.root) if word == "STORE" else word for word in arguments))
        assert code == 0, err
        return out.replace(str(store.root), "STORE")

    assert answer(folder) == answer(packed)


def test_one_run_is_shown_exported_and_watched(run, packed, tmp_path):
    name = packed.names()[0]
    code, out, _ = run("store", "show", packed.root, name[:8], "--json")
    assert (code, json.loads(out)["record"]["run"]) == (0, name)
    assert run("store", "export", packed.root, tmp_path / "runs.csv")[0] == 0
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 13
    assert Watch(packed).look()["done"] == 12


def test_commands_pack_and_unpack(run, folder, tmp_path):
    (folder.folder(folder.names()[0]) / "weights.safetensors").write_bytes(b"weights")
    code, out, _ = run("store", "pack", folder.root, tmp_path / "x.jsonl")
    assert (code, out) == (0, f"12 runs in {tmp_path / 'x.jsonl'}\nleft out: 1 weights files\n")
    code, out, _ = run("store", "unpack", tmp_path / "x.jsonl", tmp_path / "back", "--json")
    assert (code, json.loads(out)["runs"]) == (0, 12)


def test_what_would_write_is_refused_with_the_way_out(run, packed):
    way_out = f"recallscope store unpack {packed.root} {packed.root.with_suffix('')}"
    grid = Path(__file__).resolve().parents[2] / "examples" / "tiny_grid.toml"
    sizes = ("--vocab-size", "32", "--embed-dim", "8", "--state-dim", "4", "--target", "0.9")
    for arguments in (("sweep", grid), ("reproduce", "heads", "--scale", "quick"), ("capacity", *sizes)):
        code, out, err = run(*arguments, "--store", packed.root)
        assert (code, out) == (2, ""), err
        assert way_out in err
    new = record(seed=99)
    for write in (
        lambda: packed.put(new),
        lambda: packed.lease(new.run),
        lambda: run_sweep([Cell.of(new.spec)], packed),
        lambda: run_sweep([Cell.of(new.spec)], packed.root),
    ):
        with pytest.raises(StoreError, match="store unpack"):
            write()


def test_a_sweep_of_runs_that_are_there_needs_no_writing(packed):
    cells = [Cell.of(found.spec) for found in packed.records()]
    assert run_sweep(cells, packed).skipped == 12


def test_a_bad_line_is_named_and_costs_no_other(packed):
    header, *lines = packed.root.read_bytes().splitlines(keepends=True)
    edited = lines[1].replace(b'"steps":2000', b'"steps":2001')
    assert edited != lines[1]
    bad = [edited, b"\xff\x00 no JSON\n", b"[" * 10**5 + b"\n", lines[2][:90] + b"\n", lines[3], b'{"run":"../../x"}\n']
    packed.root.write_bytes(b"".join([header, lines[0], *bad, *lines[3:], b"\n", b"x" * (MOST_BYTES + 1)]))
    rows = find_runs(packed)
    assert len(rows) == 10 + 7
    damaged = {row["run"] for row in rows if row["status"] == "damaged"}
    names = [json.loads(line)["run"] for line in lines]
    assert damaged == {names[1], names[2], "line 4", "line 5", "line 8", "line 9", "line 19"}
    health = verify(packed)
    reasons = {fault.path.split(", ")[1]: fault.reason for fault in health.faults}
    assert health.done == 10
    assert "edited since it was written" in reasons["line 3"]
    assert "not JSON" in reasons["line 4"]
    assert "not JSON" in reasons["line 6"]
    assert "second record" in reasons["line 9"]
    assert "at most 10,000,000" in reasons["line 19"]
    assert all(fault.moved_to is None for fault in health.faults)
    with pytest.raises(RecordError):
        packed.facts("line 4")


def test_a_file_cut_between_two_lines_is_noticed(packed):
    lines = packed.root.read_bytes().splitlines(keepends=True)
    packed.root.write_bytes(b"".join(lines[:9]))
    (fault,) = verify(packed).faults
    assert "announces 12 records, and 8 are here" in fault.reason


@pytest.mark.parametrize(
    "text", ["", "{}\n", '{"format": "recallscope-store"}\n', '{"format": 1, "version": 2}\n', "[" * 9]
)
def test_other_files_are_not_stores(text, tmp_path):
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(StoreError, match="not a packed store"):
        RunStore(tmp_path / "x.jsonl")


def test_a_link_or_a_folder_in_place_of_packed_records_is_refused(folder, packed, tmp_path):
    (folder.root / "runs.jsonl").symlink_to(packed.root)
    with pytest.raises(StoreError, match="link or a folder"):
        RunStore(folder.root)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StoreError, match="not a packed store"):
        RunStore(tmp_path / "pipe")


def test_a_folder_adds_new_runs_beside_its_packed_part(folder, packed, tmp_path):
    """The packed part stays as it is; weights, and a run whose line is damaged, go to runs/, which then counts."""
    root = tmp_path / "both"
    root.mkdir()
    (root / "store.json").write_bytes((folder.root / "store.json").read_bytes())
    text = packed.root.read_bytes()
    lines = text.splitlines(keepends=True)
    lines[3] = lines[3].replace(b'"steps":2000', b'"steps":2001')
    (root / "runs.jsonl").write_bytes(b"".join(lines))
    store = RunStore(root)
    cells = [Cell.of(found.spec) for found in folder.records()]
    plan = make_plan(cells, store)
    assert (len(plan.done), [cell.run for cell in plan.missing]) == (11, [json.loads(lines[3])["run"]])
    assert "runs.jsonl, line 4" in plan.faults[0].path
    assert store.put(folder.get(plan.missing[0].run))
    assert store.put(record(seed=5))
    first = folder.get(json.loads(lines[1])["run"])
    assert not store.put(first, b"weights")
    assert not store.put(first)
    assert len(find_runs(store)) == len(find_runs(store)) == 13  # the second time from the index
    assert {row["status"] for row in find_runs(store)} == {"done"}
    assert store.facts(first.run)["weights_digest"]
    assert not make_plan(cells, store).missing
    (root / "runs.jsonl").write_bytes(text.replace(b'"seconds":8.25', b'"seconds":8.26'))
    assert sum(row["status"] == "damaged" for row in find_runs(store)) == 10  # noticed, in spite of the index


def test_the_committed_records_are_complete():
    """Every run that the experiments ask for at the small scale is in results/paper, and no line is damaged.

    Of the trade-off study a part was run; its page says which.
    """
    complete = [one for one in experiments() if one.name != "tradeoff"]
    cells = {cell.run: cell for one in complete for cell in one.cells("small").values()}
    plan = make_plan(cells.values(), RunStore(PAPER), look_only=True)
    assert len(plan.done) == len(cells) > 1400
    assert not plan.faults
