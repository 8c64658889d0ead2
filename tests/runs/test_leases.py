"""Of any number of rivals one holds a run; a dead holder's run is taken over, a live one's is not."""

import json
import os
import subprocess
import sys
import time

import pytest

from recallscope.runs.leases import (
    LEASE_SECONDS,
    Holder,
    drop_leases,
    is_live,
    known_dead,
    lease_files,
    this_machine,
    this_process,
    try_lease,
)

ELSEWHERE = {"machine": "another/host/0", "pid": 1, "born": "1"}

RIVAL = """
import sys
from pathlib import Path
from recallscope.runs.leases import try_lease
folders = sorted(Path(sys.argv[1]).iterdir())
print("ready", flush=True)
sys.stdin.readline()
print(" ".join(folder.name for folder in folders if try_lease(folder)), flush=True)
sys.stdin.readline()  # a holder that ends is dead, and its leases are free
"""


def rivals(root, count):
    command = [sys.executable, "-c", RIVAL, str(root)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    processes = [subprocess.Popen(command, **pipes) for _ in range(count)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * count
    for process in processes:
        process.stdin.write("go\n")
    got = [process.stdout.readline().split() for process in processes]
    live = [sum(is_live(path) for path in lease_files(folder)) for folder in root.iterdir()]
    for process in processes:
        process.communicate("\n", timeout=60)
    return got, live


def leave_lease(folder, age, **facts):
    folder.mkdir(exist_ok=True)
    path = folder / f"lease.{len(lease_files(folder)) + 1}"
    path.write_text(json.dumps({"holder": ELSEWHERE, "lease_seconds": 60.0} | facts))
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_each_run_has_one_holder_however_many_ask(tmp_path):
    """Six processes, 150 runs: a third untouched, a third with a lease run out, a third of a dead process here."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    gone = {"machine": this_machine(), "pid": dead.pid, "born": "1"}
    for number in range(150):
        folder = tmp_path / f"{number:03}"
        folder.mkdir()
        if number % 3 == 1:
            leave_lease(folder, age=100)
        if number % 3 == 2:
            leave_lease(folder, age=0, holder=gone)
    got, live = rivals(tmp_path, 6)
    won = [name for names in got for name in names]
    assert len(won) == len(set(won)), "two hold the same run"
    # each run goes to someone, unless two met and both stepped back; then the next round decides
    assert len(won) >= 140
    assert max(live) == 1


def test_a_lease_keeps_others_out_until_it_is_released(tmp_path):
    lease = try_lease(tmp_path / "run")
    assert lease is not None
    assert try_lease(tmp_path / "run") is None
    assert lease.renew()
    lease.release()
    again = try_lease(tmp_path / "run")
    assert again is not None
    assert again.path.name == "lease.2"  # numbers are never used twice while the run is unfinished


def test_the_lease_of_another_machine_ends_by_silence_only(tmp_path):
    leave_lease(tmp_path / "fresh", age=30)
    leave_lease(tmp_path / "silent", age=61)
    assert try_lease(tmp_path / "fresh") is None
    assert try_lease(tmp_path / "silent") is not None


def test_a_dead_process_of_this_machine_is_known_at_once(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    holder = Holder(machine=this_machine(), pid=process.pid, born="1")
    process.wait()
    assert known_dead(holder)
    assert not known_dead(this_process())
    assert known_dead(this_process().model_copy(update={"born": "another"}))  # the number was used again
    assert not known_dead(Holder(**ELSEWHERE))
    leave_lease(tmp_path / "run", age=0, holder=holder.model_dump())
    assert try_lease(tmp_path / "run") is not None


def test_who_wakes_up_after_being_taken_over_learns_it(tmp_path):
    sleeper = try_lease(tmp_path / "run")
    os.utime(sleeper.path, (1, 1))  # the lid was closed
    other = try_lease(tmp_path / "run")
    assert other is not None
    assert not sleeper.renew()
    assert other.renew()


def test_a_lease_cut_off_while_written_ends_like_a_silent_one(tmp_path):
    path = leave_lease(tmp_path / "run", age=1)
    path.write_text("")
    os.utime(path, (time.time() - 1, time.time() - 1))
    assert try_lease(tmp_path / "run") is None
    os.utime(path, (time.time() - 2 * LEASE_SECONDS, time.time() - 2 * LEASE_SECONDS))
    assert try_lease(tmp_path / "run") is not None


@pytest.mark.parametrize("seconds", [1e308, -1.0, float("inf"), float("nan")])
def test_a_lease_of_a_strangers_store_ends_as_well(tmp_path, seconds):
    path = leave_lease(tmp_path / "run", age=2 * LEASE_SECONDS, lease_seconds=seconds)
    os.rename(path, path.with_name("lease.999999999"))
    taken = try_lease(tmp_path / "run")
    assert taken is not None
    assert try_lease(tmp_path / "run") is None
    taken.release()
    assert try_lease(tmp_path / "run") is not None


def test_leases_of_a_finished_run_leave_nothing_behind(tmp_path):
    lease = try_lease(tmp_path / "run")
    assert try_lease(tmp_path / "run") is None
    drop_leases(tmp_path / "run")
    assert os.listdir(tmp_path / "run") == []
    assert not lease.renew()
    lease.release()
    assert os.listdir(tmp_path / "run") == []


def test_a_lease_dated_in_the_future_ends_after_its_time(tmp_path):
    path = leave_lease(tmp_path / "run", age=-1e6)
    assert try_lease(tmp_path / "run") is None  # its holder may live, and renew it
    assert path.stat().st_mtime <= time.time() + 1
    os.utime(path, (time.time() - 61, time.time() - 61))  # a minute of silence later
    assert try_lease(tmp_path / "run") is not None


def test_the_holder_may_finish_while_a_rival_looks(tmp_path, monkeypatch):
    """Found by a sweep of thousands of short runs with four drivers: the file that tells the time was gone, and with it
    the driver."""
    path = leave_lease(tmp_path / "run", age=1)
    touch = os.utime

    def touched_and_removed(*arguments, **keywords):
        touch(*arguments, **keywords)
        drop_leases(tmp_path / "run")

    monkeypatch.setattr(os, "utime", touched_and_removed)
    assert is_live(path)  # it was, when we looked
    assert not lease_files(tmp_path / "run")

    def finished_and_cleared(*arguments):
        drop_leases(tmp_path / "run")
        (tmp_path / "run").rmdir()
        raise FileNotFoundError(*arguments)

    monkeypatch.undo()
    path = leave_lease(tmp_path / "run", age=1)
    monkeypatch.setattr("recallscope.runs.leases._now", finished_and_cleared)
    assert not is_live(path)
