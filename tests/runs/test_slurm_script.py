"""The job script of docs/howto/slurm.md: array tasks share one store, and leave in order when Slurm tells them to."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from recallscope.runs.leases import read_attempts
from recallscope.runs.store import RunStore

HOWTO = Path(__file__).resolve().parents[2] / "docs" / "howto"
pytestmark = pytest.mark.slow


def block(page: str, title: str) -> str:
    (found,) = re.findall(rf'```\w+ title="{title}"\n(.*?)^```', (HOWTO / page).read_text(), re.MULTILINE | re.DOTALL)
    return found


@pytest.fixture
def array(tmp_path):
    """Start a task of the array, as Slurm does."""
    (tmp_path / "sweep.sbatch").write_text(block("slurm.md", "sweep.sbatch"))
    (tmp_path / "grid.toml").write_text(block("sweep.md", "grid.toml"))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    started = []

    def task(number: int, **environment: str) -> subprocess.Popen:
        given = (
            os.environ | {"PATH": path, "SLURM_ARRAY_TASK_ID": str(number), "SLURM_CPUS_PER_TASK": "1"} | environment
        )
        started.append(subprocess.Popen(["bash", "sweep.sbatch"], cwd=tmp_path, env=given))
        return started[-1]

    yield task
    for process in started:
        process.kill()


def events(store: RunStore, event: str) -> list[str]:
    return [run for run in store.names() for entry in read_attempts(store.folder(run)) if entry["event"] == event]


def test_two_tasks_share_one_store(array, tmp_path):
    tasks = [array(0), array(1)]
    assert [task.wait(timeout=240) for task in tasks] == [0, 0]
    store = RunStore(tmp_path / "runs" / "first")
    assert len(list(store.records())) == 8
    finished = events(store, "finished")
    assert sorted(finished) == sorted(set(finished))  # none was paid for twice
    assert len(finished) == 8


def test_a_task_that_is_out_of_time_leaves_its_runs_to_the_next(array, tmp_path):
    grid = tmp_path / "grid.toml"
    grid.write_text(grid.read_text().replace("flat_steps = 40", "flat_steps = 4000"))
    first = array(0)
    store_path = tmp_path / "runs" / "first"
    deadline = time.monotonic() + 120
    while not list(store_path.glob("runs/*/checkpoint.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.1)
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=60) == 130  # stopped before the end
    store = RunStore(store_path)
    assert 0 < len(events(store, "started")) < 8
    dry = subprocess.run(
        [sys.executable, "-m", "recallscope.cli.main", "sweep", "grid.toml", "--store", store_path, "--dry-run"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert " missing, 0 failed before" in dry.stdout
