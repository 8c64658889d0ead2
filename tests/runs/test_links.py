"""A store from elsewhere may hold links, pipes and folders in place of files: a sweep writes nothing outside of it."""

import contextlib
import os
import shutil

import pytest
from tiny_sweeps import tiny_run

from made_records import record
from recallscope.records import record_text
from recallscope.runs.driver import run_sweep
from recallscope.runs.grid import Cell
from recallscope.runs.index import rebuild_index
from recallscope.runs.leases import Failure, try_lease
from recallscope.runs.store import RunStore, StoreError
from recallscope.runs.table import find_runs
from recallscope.runs.upkeep import verify

RUN = tiny_run(flat_steps=1, decay_steps=1)
NAME = RUN.content_hash()
OLD = (10**18, 10**18)
FILES = ["attempts.jsonl", "claim.1", ".clock", "weights.safetensors", "checkpoint.safetensors", "failure.json",
         "record.json"]  # fmt: skip


@pytest.fixture
def outside(tmp_path):
    """A folder that is no part of the store, with what a sweep could append to, touch, move or remove."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in (*FILES[:5], "index.sqlite"):
        (folder / name).write_text("precious\n")
    failure = Failure(run=NAME, spec=RUN, tries=3, reason="died", stderr="", at=0.0)
    (folder / "failure.json").write_text(failure.model_dump_json())
    (folder / "record.json").write_bytes(record_text(record(run=RUN)).replace(b"0.5", b"0.6"))  # damaged: to be moved
    for path in folder.iterdir():
        os.utime(path, ns=OLD)
    os.utime(folder, ns=OLD)
    return folder


def state(folder):
    return {str(path): (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
            for path in (folder, *folder.rglob("*"))}  # fmt: skip


def sweep(store):
    """Do the run, as a sweep that adds weights and tries failed runs again; how it ended."""
    try:
        return run_sweep([Cell.of(RUN)], store, workers=0, weights=True, retry_failed=True)
    except (OSError, ValueError) as error:
        return str(error)


def every_reader(store):
    for retry in (False, True):
        find_runs(store)
        verify(store, move=retry)
    rebuild_index(store)


@pytest.mark.parametrize("name", FILES)
def test_a_link_in_place_of_a_file_of_a_run_is_not_followed(tmp_path, outside, name):
    store = RunStore(tmp_path / "store", create=True)
    store.folder(NAME).mkdir()
    (store.folder(NAME) / name).symlink_to(outside / name)
    before = state(outside)
    every_reader(store)
    (store.folder(NAME) / name).unlink(missing_ok=True)
    (store.folder(NAME) / name).symlink_to(outside / name)
    ended = sweep(store)
    assert state(outside) == before
    assert ended.done == 1 if not isinstance(ended, str) else "a link, and links in a store are not followed" in ended


@pytest.mark.parametrize("place", ["runs/" + NAME, "damaged", "index.sqlite"])
def test_a_link_in_place_of_a_folder_is_not_followed(tmp_path, outside, place):
    store = RunStore(tmp_path / "store", create=True)
    (store.root / place).symlink_to(outside / "index.sqlite" if place == "index.sqlite" else outside)
    if place == "damaged":
        store.folder(NAME).mkdir()
        shutil.copy(outside / "record.json", store.folder(NAME))  # to be set aside
    before = state(outside)
    if place != "damaged":
        assert (verify(store).links, verify(store).clean) == ([place] if place.startswith("runs") else [], True)
    for work in (every_reader, sweep):
        try:
            ended = work(store)
        except OSError as error:
            ended = str(error)
    assert state(outside) == before
    assert ended.done == 1 if place == "index.sqlite" else "links in a store are not followed" in ended


def test_a_store_whose_runs_are_a_link_is_refused(tmp_path, outside):
    RunStore(tmp_path / "store", create=True)
    (tmp_path / "store" / "runs").rmdir()
    (tmp_path / "store" / "runs").symlink_to(outside)
    with pytest.raises(StoreError, match="is a link"):
        RunStore(tmp_path / "store")


@pytest.mark.parametrize("name", [*FILES, "index.sqlite", "store.json"])
def test_a_pipe_in_place_of_a_file_is_not_waited_for(tmp_path, name):
    """Opening a pipe that nobody writes to would wait for ever."""
    store = RunStore(tmp_path / "store", create=True)
    store.folder(NAME).mkdir()
    place = store.root if name in ("index.sqlite", "store.json") else store.folder(NAME)
    (place / name).unlink(missing_ok=True)
    os.mkfifo(place / name)
    for work in (
        lambda: RunStore(store.root),
        lambda: every_reader(store),
        lambda: sweep(store),
        lambda: try_lease(store.folder(NAME)),
    ):
        with contextlib.suppress(OSError, ValueError):
            work()
