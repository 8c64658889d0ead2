"""A sweep in one call."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from recallscope.runs.driver import Driver, Outcome
from recallscope.runs.engine import Engine
from recallscope.runs.grid import Cell, Grid
from recallscope.runs.inline import InlineEngine
from recallscope.runs.leases import LEASE_SECONDS, MOST_SECONDS
from recallscope.runs.local import LocalEngine, local_slots
from recallscope.runs.plan import Plan, make_plan
from recallscope.runs.store import RunStore
from recallscope.runs.views import View


def run_sweep(
    grid: Grid | Iterable[Cell],
    store: RunStore | Path | str,
    *,
    workers: int | None = None,
    engine: Engine | Literal["local", "ray"] = "local",
    device: str = "auto",
    slots_per_gpu: int | None = None,
    address: str = "auto",
    view: View | None = None,
    plan: Plan | None = None,
    weights: bool = False,
    retry_failed: bool = False,
    lease_seconds: float = LEASE_SECONDS,
) -> Outcome:
    """Do every run of the grid that the store lacks, and return when none is missing.

    Doing it twice does nothing the second time; a wider grid runs only its new cells. Runs go to processes of this
    machine, one per core or `workers` of them (on GPUs `slots_per_gpu` each), or to the Ray cluster at `address`. With
    `workers=0` they are done here, one after another, without another process.
    `weights` keeps each run's weights beside its record. A plan that was made already is used as it is.
    """
    if not 1 <= lease_seconds <= MOST_SECONDS:
        raise ValueError(f"lease_seconds={lease_seconds:g} is outside 1..{MOST_SECONDS:.0f}.")
    home = store if isinstance(store, RunStore) else RunStore(store, create=True)
    if plan is None:
        cells = grid.cells() if isinstance(grid, Grid) else grid
        plan = make_plan(cells, home, weights=weights, retry_failed=retry_failed)
    if plan.missing:
        home.check_writable()
    if isinstance(engine, str):
        engine = _engine(engine if plan.missing else "local", home, workers, device, slots_per_gpu, address)
        if plan.missing and importlib.util.find_spec("torch") is None:
            raise ModuleNotFoundError("torch", name="torch")
    return Driver(
        store=home,
        engine=engine,
        plan=plan,
        view=view or View(),
        weights=weights,
        lease_seconds=lease_seconds,
    ).run()


def _engine(
    name: str, store: RunStore, workers: int | None, device: str, slots_per_gpu: int | None, address: str
) -> Engine:
    if name == "local" and workers == 0:
        return InlineEngine(store, local_slots(1, None, device)[0].device)
    if name == "local":
        return LocalEngine(store, local_slots(workers, slots_per_gpu, device))
    from recallscope.runs.ray_cluster import RayEngine

    return RayEngine(store, address, workers, slots_per_gpu)
