"""Real worker processes: one thread each, watched, replaced when they die, gone when the driver goes."""

import contextlib
import json
import os
import signal
import time

import pytest
import torch
from tiny_sweeps import (
    children,
    comparable,
    finish_sweep,
    grid_file,
    module_grid,
    records,
    start_sweep,
    tiny_grid,
    tiny_run,
    workers_of,
)

from recallscope.runs.driver import Driver, run_sweep
from recallscope.runs.engine import EngineError
from recallscope.runs.forkserver import ForkServer
from recallscope.runs.grid import Grid
from recallscope.runs.leases import read_attempts
from recallscope.runs.local import InlineEngine, LocalEngine, Slot, how_it_ended, local_slots
from recallscope.runs.plan import make_plan
from recallscope.runs.store import RunStore
from recallscope.runs.upkeep import verify
from recallscope.runs.views import View
from recallscope.train.loop import train_run


class KillingView(View):
    """Kills a worker each time a run has come some way, up to a number of times."""

    def __init__(self, engine, times):
        self.engine, self.times = engine, times
        self.retries = []

    def moved(self, cell, step, total_steps):
        if self.times and step > 100:
            self.times -= 1
            os.kill(self.engine.pids()[0], signal.SIGKILL)

    def retried(self, cell, reason):
        self.retries.append(reason)


def test_records_equal_those_of_a_training_in_this_process(tmp_path):
    outcome = run_sweep(tiny_grid(seeds=1), tmp_path / "store", workers=2, weights=True)
    assert (outcome.done, outcome.failed) == (5, 0)
    found = records(tmp_path / "store")
    for cell in tiny_grid(seeds=1).cells():
        assert found[cell.run] == comparable(train_run(cell.spec).record)
        folder = tmp_path / "store" / "runs" / cell.run
        assert (folder / "weights.safetensors").exists()
        assert json.loads((folder / "record.json").read_text())["environment"]["threads"] == "1"
    assert verify(RunStore(tmp_path / "store")).clean


def test_a_killed_worker_costs_its_run_only_which_goes_on_from_its_checkpoint(tmp_path):
    store = RunStore(tmp_path / "store", create=True)
    grid = Grid.around(tiny_run(flat_steps=2000, eval_every=50), axes={"seed": [0]})
    engine = LocalEngine(store, local_slots(1))
    view = KillingView(engine, times=2)
    outcome = Driver(store=store, engine=engine, plan=make_plan(grid.cells(), store), view=view).run()
    assert outcome.done == 1
    assert view.retries == ["was killed by SIGKILL (out of memory, or by hand)"] * 2
    (cell,) = grid.cells()
    assert [entry["event"] for entry in read_attempts(store.folder(cell.run))] == ["started"] * 3 + ["finished"]
    assert records(store.root) == {cell.run: comparable(train_run(cell.spec).record)}


def test_a_run_too_large_for_the_machine_is_refused_once_and_the_others_are_done(tmp_path):
    """An embedding of 4e15 bytes is too much for any machine."""
    base = tiny_run().model_dump()
    base["model"] |= {"embed_dim": 10**6}
    grid = Grid(
        base=base, axes={"vocab_size": [32, 10**9]}, derived={"embed_dim": "8 + 999992 * (vocab_size // 1000000000)"}
    )
    outcome = run_sweep(grid, tmp_path / "store", workers=1)
    assert (outcome.done, outcome.failed) == (1, 1)
    store = RunStore(tmp_path / "store")
    (failure,) = [found for cell in grid.cells() if (found := store.failure(cell.run))]
    assert failure.tries == 1
    assert "GB" in failure.reason


BREAKS = """
import torch


class Model(torch.nn.Module):
    def __init__(self, vocab_size, breaks):
        super().__init__()
        self.breaks, self.table = breaks, torch.nn.Embedding(vocab_size, vocab_size)

    def forward(self, tokens):
        if self.breaks and len(tokens) > 2:
            raise RuntimeError("broken on purpose")
        return self.table(tokens)
"""


def test_a_run_that_fails_three_times_is_given_up_with_its_stderr_and_the_others_are_done(tmp_path):
    grid = module_grid(tmp_path, BREAKS, breaks=[False, True])
    outcome = run_sweep(grid, tmp_path / "store", workers=1)
    assert (outcome.done, outcome.failed) == (1, 1)
    store = RunStore(tmp_path / "store")
    (failure,) = [found for cell in grid.cells() if (found := store.failure(cell.run))]
    assert failure.tries == 3
    assert failure.reason == "ended with exit code 1"
    assert "RuntimeError: broken on purpose" in failure.stderr
    assert "Traceback" in failure.stderr


def test_workers_that_cannot_start_stop_the_sweep_instead_of_failing_every_run(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    store = RunStore(tmp_path / "store", create=True)
    engine = LocalEngine(store, [Slot("cpu")])
    with pytest.raises(EngineError, match="no worker can start"):
        Driver(store=store, engine=engine, plan=make_plan(tiny_grid(1).cells(), store), view=View()).run()
    assert not [cell for cell in tiny_grid(1).cells() if store.failure(cell.run)]


def wait_for(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_within_seconds_saves_and_prints_the_command_that_resumes(tmp_path, number):
    grid = grid_file(tmp_path, flat_steps=600)
    process = start_sweep(grid, tmp_path / "store")
    wait_for(lambda: len(list(tmp_path.glob("store/runs/*/checkpoint.safetensors"))) >= 2)
    workers = workers_of(process.pid)
    began = time.monotonic()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert process.returncode == 130
    assert f"recallscope sweep {grid} --store {tmp_path / 'store'} --workers 2 --json" in err
    assert "Traceback" not in err
    assert json.loads(out)["failed"] == 0
    assert all(gone(worker) for worker in workers)
    assert verify(RunStore(tmp_path / "store")).clean
    assert list(tmp_path.glob("store/runs/*/checkpoint.safetensors"))
    assert not [run for run in RunStore(tmp_path / "store").names() if not RunStore(tmp_path / "store").lease(run)]


def test_workers_go_when_their_driver_is_killed(tmp_path):
    process = start_sweep(grid_file(tmp_path, flat_steps=3000), tmp_path / "store")
    wait_for(lambda: list(tmp_path.glob("store/runs/*/checkpoint.safetensors")))
    workers = workers_of(process.pid)
    assert len(workers) == 2
    process.kill()
    process.communicate()
    wait_for(lambda: all(gone(worker) for worker in workers), seconds=5)


def test_two_drivers_at_once_do_each_run_once(tmp_path):
    grid = grid_file(tmp_path, flat_steps=40)
    first, second = (start_sweep(grid, tmp_path / "store", workers=1) for _ in range(2))
    one, two = finish_sweep(first), finish_sweep(second)
    assert one["done"] + two["done"] == 24
    assert one["done"] + one["skipped"] == two["done"] + two["skipped"] == 24
    assert min(one["done"], two["done"]) > 0
    store = RunStore(tmp_path / "store")
    for run in store.names():
        assert [entry["event"] for entry in read_attempts(store.folder(run))] == ["started", "finished"]
    assert verify(store).clean


def test_exit_codes_are_put_into_words():
    assert how_it_ended(1) == "ended with exit code 1"
    assert how_it_ended(-signal.SIGSEGV) == "was killed by SIGSEGV"
    assert how_it_ended(-signal.SIGKILL) == "was killed by SIGKILL (out of memory, or by hand)"
    assert how_it_ended(-40) == "was killed by 40"


def test_slots_are_cores_or_shares_of_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert [slot.device for slot in local_slots(3)] == ["cpu"] * 3
    with pytest.raises(ValueError, match="shows none"):
        local_slots(slots_per_gpu=2)
    with pytest.raises(ValueError, match="shows no GPU"):
        local_slots(device="cuda")
    with pytest.raises(ValueError, match="workers=0"):
        local_slots(0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    places = [slot.environment["CUDA_VISIBLE_DEVICES"] for slot in local_slots(slots_per_gpu=2)]
    assert places == ["4", "7", "4", "7"]
    assert {slot.device for slot in local_slots(slots_per_gpu=2)} == {"cuda:0"}
    assert len(local_slots(3, slots_per_gpu=2)) == 3
    assert [slot.device for slot in local_slots(2, device="cpu")] == ["cpu"] * 2


FULL_DISK = """
import errno, os, sys
real = os.fsync
def fsync(descriptor):
    if os.path.exists({flag!r}) and {name!r} in os.readlink(f"/proc/self/fd/{{descriptor}}"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return real(descriptor)
os.fsync = fsync
"""


def test_a_full_disk_is_not_blamed_on_the_runs(tmp_path, monkeypatch):
    """Workers get the error from a call of theirs to the system; the sweep stops, and a plain resume finishes."""
    flag, name, store = tmp_path / "full", "checkpoint.safetensors", RunStore(tmp_path / "store", create=True)
    flag.touch()
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(FULL_DISK.format(flag=str(flag), name=name))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")]))
    cells = tiny_grid(seeds=1).cells()
    with pytest.raises(EngineError, match=f"{name}: No space left on device.*No run is marked failed"):
        run_sweep(cells, store, workers=1)
    assert not list(store.runs.glob("*/failure.json"))
    assert not list(store.runs.glob("*/.*.tmp"))
    flag.unlink()
    outcome = run_sweep(cells, store, workers=1)
    assert (outcome.done, outcome.failed) == (len(cells), 0)


FORKS = """
import os, signal, torch


class Model(torch.nn.Module):
    def __init__(self, vocab_size, dies):
        super().__init__()
        self.dies, self.table = dies, torch.nn.Embedding(vocab_size, vocab_size)

    def forward(self, tokens):
        if len(tokens) > 2 and not os.path.exists("child"):
            child = os.fork()
            if child == 0:
                signal.pause()
            with open("child", "w") as file:
                file.write(str(child))
            os.write(1, b"not a message\\n{}\\n[1]\\n")
            if self.dies:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.table(tokens)
"""


@pytest.mark.parametrize("dies", [False, True])
def test_a_worker_that_forks_is_watched_and_ended_with_its_child(tmp_path, monkeypatch, dies):
    """The child holds the worker's pipe open, so its end is not seen there."""
    monkeypatch.chdir(tmp_path)
    outcome = run_sweep(module_grid(tmp_path, FORKS, dies=[dies]), tmp_path / "store", workers=1)
    assert (outcome.done, outcome.failed) == (1, 0)
    wait_for(lambda: gone(int((tmp_path / "child").read_text())), seconds=5)


def test_the_loss_of_the_fork_server_costs_no_run(tmp_path):
    class KillsTheServer(KillingView):
        def moved(self, cell, step, total_steps):
            if self.times:
                self.times -= 1
                os.kill(next(iter(self.engine._workers.values())).server._process.pid, signal.SIGKILL)

    store = RunStore(tmp_path / "store", create=True)
    cells = Grid.around(tiny_run(flat_steps=1500), axes={"seed": [0, 1]}).cells()
    engine = LocalEngine(store, local_slots(2))
    view = KillsTheServer(engine, times=1)
    outcome = Driver(store=store, engine=engine, plan=make_plan(cells, store), view=view).run()
    assert (outcome.done, outcome.failed) == (2, 0)
    assert set(view.retries) == {"was lost with the process that starts workers"}


def test_where_forking_is_not_safe_workers_are_new_interpreters(tmp_path):
    read, write = os.pipe()
    os.close(write)
    with contextlib.closing(ForkServer(dict(os.environ), forks=False)) as server:
        with open(tmp_path / "said", "wb") as said:
            stdio = (read, said.fileno(), said.fileno())
            pid = server.start([str(tmp_path), "cpu"], os.environ | {"COLUMNS": "90"}, stdio)
        os.close(read)
        wait_for(lambda: server.collect() or server.exit_code(pid) is not None)
        assert server.exit_code(pid) == -signal.SIGKILL  # its stdin had ended: it ends itself and what it has started


def test_inline_runs_are_those_of_workers(tmp_path):
    """No process is started, records are equal bit for bit, and torch keeps its number of threads."""
    threads, before = torch.get_num_threads(), children(os.getpid())
    outcome = run_sweep(tiny_grid(seeds=1), tmp_path / "store", workers=0)
    assert (outcome.done, outcome.failed) == (5, 0)
    assert children(os.getpid()) == before
    assert torch.get_num_threads() == threads
    trained = {cell.run: comparable(train_run(cell.spec).record) for cell in tiny_grid(seeds=1).cells()}
    assert records(tmp_path / "store") == trained


def test_inline_failures_are_noted_like_those_of_workers(tmp_path):
    grid = module_grid(tmp_path, BREAKS, breaks=[False, True])
    outcome = run_sweep(grid, tmp_path / "store", workers=0)
    assert (outcome.done, outcome.failed) == (1, 1)
    (failure,) = [found for cell in grid.cells() if (found := RunStore(tmp_path / "store").failure(cell.run))]
    assert failure.reason.endswith("RuntimeError: broken on purpose")
    assert "Traceback" in failure.stderr


def test_an_inline_sweep_stops_when_asked_and_resumes(tmp_path, monkeypatch):
    monkeypatch.setattr("recallscope.runs.worker.REPORT_EVERY", 0.0)  # seconds

    class StopsEarly(View):
        def moved(self, cell, step, total_steps):
            if step > 50:  # the first evaluation wrote a checkpoint
                driver.stop.set()

    store = RunStore(tmp_path / "store", create=True)
    cells = Grid.around(tiny_run(flat_steps=600, eval_every=50), axes={"seed": [0]}).cells()
    driver = Driver(store=store, engine=InlineEngine(store), plan=make_plan(cells, store), view=StopsEarly())
    assert driver.run().interrupted
    assert list(store.runs.glob("*/checkpoint.safetensors"))
    assert run_sweep(cells, store, workers=0).done == 1
    assert records(store.root) == {cells[0].run: comparable(train_run(cells[0].spec).record)}
