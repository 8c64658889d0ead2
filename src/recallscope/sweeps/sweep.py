"""A sweep in one call."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from recallscope.store import RunStore
from recallscope.store.claims import LEASE_SECONDS
from recallscope.sweeps.driver import Driver, Outcome
from recallscope.sweeps.engines import Engine
from recallscope.sweeps.grids import Cell, Grid
from recallscope.sweeps.local import LocalEngine
from recallscope.sweeps.plan import make_plan
from recallscope.sweeps.slots import local_slots
from recallscope.sweeps.view import SilentView, View


def run_sweep(
    grid: Grid | Iterable[Cell],
    store: RunStore | Path | str,
    *,
    workers: int | None = None,
    engine: Engine | None = None,
    view: View | None = None,
    weights: bool = False,
    retry_failed: bool = False,
    lease_seconds: float = LEASE_SECONDS,
) -> Outcome:
    """Do every run of the grid, or every cell given, that the store lacks, and return when none is missing.

    Doing it twice does nothing the second time; a wider grid runs only its new cells. Without an engine the runs go to
    processes of this machine, one per core or `workers` of them.
    """
    home = store if isinstance(store, RunStore) else RunStore(store, create=True)
    cells = grid.cells() if isinstance(grid, Grid) else grid
    plan = make_plan(cells, home, weights=weights, retry_failed=retry_failed)
    engine = engine or LocalEngine(home, local_slots(workers))
    return Driver(
        store=home,
        engine=engine,
        plan=plan,
        view=view or SilentView(),
        weights=weights,
        retry_failed=retry_failed,
        lease_seconds=lease_seconds,
    ).run()
