"""The driver's promises, with an engine that does as it is told: tries, failures, leases, stops."""

import errno
import itertools
import os
import sys
import threading
import time

import pytest
from tiny_sweeps import tiny_grid, tiny_run

from recallscope.records import RunRecord
from recallscope.runs import plan as plan_module
from recallscope.runs.driver import Driver, run_sweep
from recallscope.runs.engine import Died, EngineError, Finished, Halted, Job, Moved
from recallscope.runs.grid import Cell
from recallscope.runs.leases import Failure, read_attempts
from recallscope.runs.plan import estimated_cost, make_plan
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs
from recallscope.runs.views import PlainView, Tally, View, clock

FAULTS = [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EACCES, errno.EPERM, errno.EFBIG, errno.ESTALE]


def pretend_record(job: Job) -> RunRecord:
    numbers = {"test_accuracy": 0.5, "val_accuracy": 0.5, "test_queries": 1, "best_step": 1, "steps": 1, "seconds": 0.0}
    return RunRecord(run=job.run, spec=job.spec, **numbers)


class PuppetEngine:
    """Finishes or kills what it is given, as `fate` says: a function of job and try."""

    def __init__(self, store, fate=lambda job, attempt: "finish", slots=2):
        self.store, self.fate, self.slots = store, fate, slots
        self.running, self.started, self.cancelled, self.closed = {}, [], [], False
        self.tries = {}

    def start(self, job):
        assert len(self.running) < self.slots
        self.running[job.run] = job
        self.started.append(job.run)
        self.tries[job.run] = self.tries.get(job.run, 0) + 1

    def wait(self, seconds):
        events = []
        for run, job in list(self.running.items()):
            fate = self.fate(job, self.tries[run])
            if fate == "hang":
                continue
            events.append(Moved(run, 1, 2))
            del self.running[run]
            if fate in ("finish", "die after writing"):
                self.store.put(pretend_record(job))
            if fate == "finish":
                events.append(Finished(run))
            elif fate == "die early":
                events.append(Died(run, "was killed by SIGKILL", "", begun=False))
            else:
                events.append(Died(run, "was killed by SIGSEGV", "last words"))
        return events

    def cancel(self, run):
        self.cancelled.append(run)
        del self.running[run]

    def close(self):
        self.closed = True


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "store", create=True)


def drive(store, engine, cells=None, **more):
    cells = tiny_grid(seeds=2).cells() if cells is None else cells
    plan = make_plan(cells, store, retry_failed=more.pop("retry_failed", False))
    return Driver(store=store, engine=engine, plan=plan, view=View(), **more).run()


def test_a_sweep_done_twice_does_nothing_the_second_time(store):
    assert drive(store, PuppetEngine(store)).done == 10
    again = PuppetEngine(store)
    outcome = drive(store, again)
    assert (outcome.done, outcome.skipped, again.started) == (0, 10, [])


def test_a_wider_grid_runs_only_its_new_cells(store):
    drive(store, PuppetEngine(store), tiny_grid(seeds=1).cells())
    engine = PuppetEngine(store)
    outcome = drive(store, engine, tiny_grid(seeds=3).cells())
    assert (outcome.done, outcome.skipped) == (10, 5)
    assert not set(engine.started) & {cell.run for cell in tiny_grid(seeds=1).cells()}


def test_long_cells_start_first(store):
    engine = PuppetEngine(store)
    cells = tiny_grid(seeds=2).cells()
    drive(store, engine, cells)
    costs = {cell.run: estimated_cost(cell.spec) for cell in cells}
    assert [costs[run] for run in engine.started] == sorted(costs.values(), reverse=True)


def test_three_tries_then_failed_and_the_sweep_goes_on(store):
    cells = tiny_grid(seeds=1).cells()
    bad = cells[0].run
    engine = PuppetEngine(store, lambda job, attempt: "die" if job.run == bad else "finish")
    outcome = drive(store, engine, cells)
    assert (outcome.done, outcome.failed) == (4, 1)
    assert engine.tries[bad] == 3
    failure = store.failure(bad)
    assert (failure.tries, failure.reason, failure.stderr) == (3, "was killed by SIGSEGV", "last words")
    assert {row["run"] for row in find_runs(store) if row["status"] == "failed"} == {bad}
    again = PuppetEngine(store)
    assert drive(store, again, cells).failed == 1
    assert again.started == []
    assert drive(store, PuppetEngine(store), cells, retry_failed=True).done == 1
    assert store.failure(bad) is None


@pytest.mark.parametrize("years", [-10, 10])
def test_failed_runs_are_tried_again_whatever_the_clock_of_the_note(store, years):
    """Such as one of a host whose clock is ahead; and a run that fails anew while the sweep goes on is left alone."""
    cells = tiny_grid(seeds=1).cells()
    bad, other = (
        Failure(run=cell.run, spec=cell.spec, tries=3, reason="died", stderr="", at=time.time() + years * 3e7)
        for cell in cells[:2]
    )
    store.put_failure(bad)
    plan = make_plan(cells, store, retry_failed=True)
    store.put_failure(other)  # by another driver, after our plan was made
    engine = PuppetEngine(store)
    outcome = Driver(store, engine, plan, View()).run()
    assert (outcome.done, outcome.failed) == (4, 1)
    assert other.run not in engine.started


def test_a_run_may_die_twice_and_still_be_done(store):
    engine = PuppetEngine(store, lambda job, attempt: "die" if attempt < 3 else "finish")
    assert drive(store, engine).done == 10


def test_a_worker_that_dies_before_it_begins_is_not_the_runs_fault(store):
    engine = PuppetEngine(store, lambda job, attempt: "die early" if attempt < 6 else "finish")
    assert drive(store, engine, tiny_grid(seeds=1).cells()).done == 5


def test_a_worker_that_dies_after_writing_its_record_has_finished(store):
    engine = PuppetEngine(store, lambda job, attempt: "die after writing")
    assert drive(store, engine).done == 10
    assert set(engine.tries.values()) == {1}


def test_a_checkpoint_on_which_tries_die_is_set_aside_before_the_last(store):
    (cell, *_) = tiny_grid(seeds=1).cells()
    store.folder(cell.run).mkdir()
    checkpoint = store.folder(cell.run) / "checkpoint.safetensors"
    checkpoint.write_bytes(b"poison")
    engine = PuppetEngine(store, lambda job, attempt: "die" if checkpoint.exists() else "finish")
    assert drive(store, engine, [cell]).done == 1
    assert [path.read_bytes() for path in store.root.glob("damaged/*/checkpoint.safetensors")] == [b"poison"]


def test_runs_held_by_another_are_waited_for_and_counted_as_skipped(store):
    cells = tiny_grid(seeds=1).cells()
    lease = store.lease(cells[0].run)
    store_again = RunStore(store.root)
    threading.Timer(1.0, lambda: store_again.put(pretend_record(Job(cells[0].run, cells[0].spec)))).start()
    outcome = drive(store, PuppetEngine(store), cells)
    assert (outcome.done, outcome.skipped) == (4, 1)
    assert not lease.renew()


def test_runs_another_gives_back_are_taken(store):
    cells = tiny_grid(seeds=1).cells()
    lease = store.lease(cells[0].run)
    threading.Timer(0.7, lease.release).start()
    assert drive(store, PuppetEngine(store), cells).done == 5


def test_a_run_taken_over_while_we_slept_is_left_to_its_new_holder(store):
    (cell, *_) = tiny_grid(seeds=1).cells()
    mine = PuppetEngine(store, lambda job, attempt: "hang")
    other = RunStore(store.root)

    def steal():
        (path,) = store.folder(cell.run).glob("lease.1")
        os.utime(path, (1, 1))
        assert other.lease(cell.run, lease_seconds=60) is not None
        threading.Timer(1.0, lambda: other.put(pretend_record(Job(cell.run, cell.spec)))).start()

    threading.Timer(0.1, steal).start()
    outcome = drive(store, mine, [cell], lease_seconds=3.0)
    assert mine.cancelled == [cell.run]
    assert (outcome.done, outcome.skipped) == (0, 1)


def test_stopping_keeps_what_is_done_and_frees_the_rest(store):
    stop = threading.Event()
    counter = itertools.count()

    def fate(job, attempt):
        if next(counter) == 3:
            stop.set()
        return "finish" if not stop.is_set() else "hang"

    engine = PuppetEngine(store, fate)
    outcome = drive(store, engine, stop=stop)
    assert outcome.interrupted
    assert engine.closed
    assert outcome.done == len(list(store.records())) > 0
    assert drive(store, PuppetEngine(store)).done == 10 - outcome.done


def test_an_engine_that_breaks_leaves_no_lease_behind(store):
    class Broken(PuppetEngine):
        def wait(self, seconds):
            raise RuntimeError("broken")

    engine = Broken(store)
    with pytest.raises(RuntimeError, match="broken"):
        drive(store, engine)
    assert engine.closed
    assert drive(store, PuppetEngine(store)).done == 10


def test_damaged_records_are_set_aside_and_run_again(store):
    cells = tiny_grid(seeds=1).cells()
    drive(store, PuppetEngine(store), cells)
    (store.folder(cells[1].run) / "record.json").write_text("{")
    plan = plan_module.make_plan(cells, store, look_only=True)
    assert len(plan.faults) == len(plan.missing) == 1
    assert plan.faults[0].moved_to is None
    engine = PuppetEngine(store)
    assert drive(store, engine, cells).done == 1
    assert engine.started == [cells[1].run]


def test_plain_lines_say_what_happened(store, capsys):
    cells = tiny_grid(seeds=1).cells()
    engine = PuppetEngine(store, lambda job, attempt: "die" if job.run == cells[0].run else "finish")
    Driver(store=store, engine=engine, plan=make_plan(cells, store), view=PlainView(sys.stdout)).run()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "5 runs: 0 done, 5 to do"
    assert sum(" done " in line and "accuracy 0.5000" in line for line in lines) == 4
    assert sum(" retry " in line and "SIGSEGV" in line for line in lines) == 2
    assert sum(" FAILED " in line for line in lines) == 1
    assert "[5/5]" in lines[-1]


def test_the_time_left_follows_the_work_left(store, monkeypatch):
    cells = tiny_grid(seeds=1).cells()
    tally = Tally.of(make_plan(cells, store))
    assert tally.seconds_left() is None
    monkeypatch.setattr("time.monotonic", lambda: tally.began + 10)
    tally.move(cells[0], "done")
    total, first = sum(estimated_cost(c.spec) for c in cells), estimated_cost(cells[0].spec)
    assert tally.seconds_left() == pytest.approx(10 * (total - first) / first)
    tally.shares[cells[1].run] = 0.5
    assert tally.seconds_left() < 10 * (total - first) / first
    for cell in cells[1:]:
        tally.move(cell, "done")
    assert tally.seconds_left() == 0
    assert [clock(s) for s in (None, 0.4, 12, 75, 7200)] == ["-", "0:00", "0:12", "1:15", "2:00:00"]


def test_what_a_killed_worker_left_of_a_finished_run_is_tidied_by_the_next_sweep(store):
    cells = tiny_grid(seeds=1).cells()
    for cell in cells:
        store.put(pretend_record(Job(cell.run, cell.spec)))
        (store.folder(cell.run) / "checkpoint.safetensors").write_bytes(b"")
        (store.folder(cell.run) / "lease.1").write_text("")
        os.utime(store.folder(cell.run) / "lease.1", (1, 1))
    drive(store, PuppetEngine(store), cells)
    assert {name for cell in cells for name in os.listdir(store.folder(cell.run))} == {"record.json"}


@pytest.mark.parametrize("number", FAULTS)
def test_a_disk_that_cannot_be_written_stops_the_sweep_and_fails_no_run(store, monkeypatch, number):
    """Whether a worker says so or the driver itself meets it; the same sweep then finishes."""

    def refuse(path, flags, *rest, real=os.open):
        if not flags & os.O_CREAT:
            return real(path, flags, *rest)
        raise OSError(number, os.strerror(number), str(store.root / "a file"))

    with monkeypatch.context() as patch:
        patch.setattr("recallscope.runs.leases.os.open", refuse)
        with pytest.raises(EngineError, match=os.strerror(number) + ".*the same command resumes"):
            drive(store, PuppetEngine(store))
    halting = PuppetEngine(store)
    halting.wait = lambda seconds: [Halted(run, os.strerror(number)) for run in halting.running]
    with pytest.raises(EngineError, match="No run is marked failed"):
        drive(store, halting)
    assert halting.closed
    assert drive(store, PuppetEngine(store)).done == 10


@pytest.mark.parametrize("number", FAULTS)
def test_a_record_that_cannot_be_written_costs_one_training_run(store, monkeypatch, number):
    """Another try could not write either; three of them used to be made."""
    real = os.replace

    def refuse(old, new):
        if str(new).endswith("record.json"):
            raise OSError(number, os.strerror(number), str(old), None, str(new))
        return real(old, new)

    cell = Cell.of(tiny_run(flat_steps=1, decay_steps=1))
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        with pytest.raises(EngineError, match=os.strerror(number)):
            run_sweep([cell], store, workers=0)
    assert [entry["event"] for entry in read_attempts(store.folder(cell.run))] == ["started"]
    assert store.failure(cell.run) is None
    assert run_sweep([cell], store, workers=0).done == 1
