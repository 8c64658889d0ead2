"""Runs: grids of them, done once each on this machine or on a cluster, and kept in a folder of plain files.

Reading, planning and driving need no torch; only workers load it.
"""

from recallscope.runs.attempts import Failure, note_attempt, read_attempts
from recallscope.runs.driver import Driver, Outcome
from recallscope.runs.engine import Engine, EngineError
from recallscope.runs.grid import Cell, Grid, grid_from_fields, read_grid
from recallscope.runs.index import extend_index, rebuild_index
from recallscope.runs.leases import Lease
from recallscope.runs.local import LocalEngine, local_slots
from recallscope.runs.packing import Copied, pack_store, unpack_store
from recallscope.runs.plan import Plan, estimated_cost, make_plan
from recallscope.runs.store import Fault, RunStore, StoreError
from recallscope.runs.sweep import run_sweep
from recallscope.runs.table import Condition, export_rows, find_name, find_runs, parse_conditions
from recallscope.runs.upkeep import Health, verify
from recallscope.runs.views import PlainView, View, progress_view

__all__ = [
    "Cell",
    "Condition",
    "Copied",
    "Driver",
    "Engine",
    "EngineError",
    "Failure",
    "Fault",
    "Grid",
    "Health",
    "Lease",
    "LocalEngine",
    "Outcome",
    "PlainView",
    "Plan",
    "RunStore",
    "StoreError",
    "View",
    "estimated_cost",
    "export_rows",
    "extend_index",
    "find_name",
    "find_runs",
    "grid_from_fields",
    "local_slots",
    "make_plan",
    "note_attempt",
    "pack_store",
    "parse_conditions",
    "progress_view",
    "read_attempts",
    "read_grid",
    "rebuild_index",
    "run_sweep",
    "unpack_store",
    "verify",
]
