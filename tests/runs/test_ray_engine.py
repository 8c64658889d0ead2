"""The same plan on a Ray cluster: a node may die without a word, and records equal the local engine's bit for bit."""

import contextlib
import logging
import os
import shutil
import signal
import tempfile
import time
import warnings
from pathlib import Path

import pytest
from tiny_sweeps import children, records, tiny_grid

from recallscope.runs.driver import run_sweep
from recallscope.runs.grid import grid_from_fields
from recallscope.runs.store import RunStore
from recallscope.runs.upkeep import verify
from recallscope.runs.views import View

pytest.importorskip("ray")
from recallscope.runs.ray_cluster import RayEngine

pytestmark = [pytest.mark.surfaces, pytest.mark.xdist_group("ray")]  # one cluster at a time


@pytest.fixture
def cluster(monkeypatch):
    """Two nodes of one CPU each, on the loopback; gone afterwards."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import ray
        from ray.cluster_utils import Cluster

        logging.getLogger("ray").setLevel(logging.ERROR)
        # nodes take the machine's own address, which the kernel keeps on the loopback; Ray rewrites 127.0.0.1 to it
        node = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
        health = {
            "health_check_initial_delay_ms": 0,
            "health_check_period_ms": 500,
            "health_check_failure_threshold": 4,
        }
        home = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # short: sockets live there
        # the nodes' files, and the note of the cluster's address, which Ray writes into a folder it expects to find
        monkeypatch.setenv("RAY_TMPDIR", home)
        folder = os.path.join(home, "ray")
        os.mkdir(folder)
        head = node | {"include_dashboard": False, "_system_config": health, "temp_dir": folder}
        found = Cluster(initialize_head=True, head_node_args=head)
        second = found.add_node(**node)
        found.wait_for_nodes()
        try:
            yield found, second
        finally:
            ray.shutdown()
            found.shutdown()
            shutil.rmtree(home, ignore_errors=True)


class NodeKiller(View):
    """Kills a node once some runs are done and every node is in the middle of another."""

    def __init__(self, cluster, node):
        self.cluster, self.node = cluster, node
        self.under_way, self.done, self.retries, self.alive = {}, 0, [], True

    def started(self, cell):
        self.under_way[cell.run] = time.monotonic()

    def finished(self, cell, record, *, by_another=False):
        del self.under_way[cell.run]
        self.done += 1

    def retried(self, cell, reason):
        del self.under_way[cell.run]
        self.retries.append(reason)

    def tick(self):
        youngest = max(self.under_way.values(), default=0.0)
        if self.alive and self.done >= 3 and len(self.under_way) == 2 and time.monotonic() - youngest > 0.3:
            self.alive = False
            raylet = self.node.all_processes["raylet"][0].process.pid
            for pid in (raylet, *children(raylet)):  # as a power cut does: raylet and workers, no grace for any
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.cluster.remove_node(self.node, allow_graceful=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(240)
def test_a_node_killed_in_mid_sweep_costs_nothing_but_time(cluster, tmp_path):
    found, second = cluster
    grid = tiny_grid(seeds=2, flat_steps=600, eval_every=60)
    store = RunStore(tmp_path / "ray", create=True)
    view = NodeKiller(found, second)
    outcome = run_sweep(grid, store, engine=RayEngine(store, found.address), view=view)
    assert (outcome.done, outcome.failed) == (10, 0)
    assert view.retries, "the node died idle: nothing was lost, and nothing shown"
    run_sweep(grid, tmp_path / "local", workers=1)
    assert records(tmp_path / "ray") == records(tmp_path / "local")
    assert verify(store).clean


@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(240)
def test_nodes_find_a_module_of_ones_own_in_the_drivers_folder(cluster, tmp_path, monkeypatch):
    shutil.copy(Path(__file__).resolve().parents[1] / "extension" / "my_gru.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    model, axes = {"kind": "my_gru.py:Model"}, {"width": [4, 8]}
    train = {"batch_size": 4, "warmup_steps": 1, "flat_steps": 3, "decay_steps": 2, "eval_every": 3, "eval_size": 8}
    task = {"vocab_size": 16, "num_facts": 2}
    grid = grid_from_fields({"task": task, "model": model, "train": train, "axes": axes})
    store = RunStore(tmp_path / "store", create=True)
    outcome = run_sweep(grid, store, engine=RayEngine(store, cluster[0].address))
    assert (outcome.done, outcome.failed) == (2, 0), [store.failure(cell.run) for cell in grid.cells()]
    assert sorted(record.spec.model.arguments["width"] for record in store.records()) == [4, 8]
    broken = grid_from_fields({"task": task, "model": model, "train": train, "axes": {"size": [3]}})
    assert run_sweep(broken, store, engine=RayEngine(store, cluster[0].address)).failed == 1
    assert "could not begin" in store.failure(broken.cells()[0].run).reason


@pytest.mark.filterwarnings("ignore")
def test_without_a_cluster_the_way_to_start_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    from recallscope.runs.engine import EngineError

    store = RunStore(tmp_path / "store", create=True)
    with pytest.raises(EngineError, match="ray start --head"):
        RayEngine(store, "127.0.0.1:1")
