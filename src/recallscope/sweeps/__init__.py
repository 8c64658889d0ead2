"""Sweeps: grids of runs, done once each, on this machine or on a cluster, whatever dies on the way."""

from recallscope.sweeps.driver import Driver, Outcome
from recallscope.sweeps.engines import Engine, EngineError
from recallscope.sweeps.grid_file import read_grid
from recallscope.sweeps.grids import Cell, Grid
from recallscope.sweeps.local import LocalEngine
from recallscope.sweeps.plan import Plan, make_plan
from recallscope.sweeps.slots import local_slots
from recallscope.sweeps.sweep import run_sweep
from recallscope.sweeps.view import PlainView, SilentView

__all__ = [
    "Cell",
    "Driver",
    "Engine",
    "EngineError",
    "Grid",
    "LocalEngine",
    "Outcome",
    "PlainView",
    "Plan",
    "SilentView",
    "local_slots",
    "make_plan",
    "read_grid",
    "run_sweep",
]
