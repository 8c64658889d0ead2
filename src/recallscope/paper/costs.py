"""What experiments cost on one core: measured where there are runs, extrapolated by the amount of work elsewhere.

`measured_costs.json` beside this file is written by `python results/paper/costs.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from recallscope.paper.experiment import SCALES, Experiment, Scale, experiments
from recallscope.records import RunRecord
from recallscope.runs.plan import estimated_cost

Cost = dict[str, float | bool]  # core_seconds of all runs of a scale, measured or extrapolated, and how many they are
CostTable = dict[str, dict[str, Cost]]  # by experiment and scale


@cache
def _kept() -> CostTable:
    table: CostTable = json.loads((files("recallscope.paper") / "measured_costs.json").read_text(encoding="utf-8"))
    return table


def measured_cost(experiment: str, scale: Scale) -> Cost:
    """The cost of an experiment at a scale; nan if nobody has measured any run of it."""
    return _kept().get(experiment, {}).get(scale, {"core_seconds": float("nan"), "measured": False, "runs": 0})


def cost_table(records: Mapping[str, RunRecord]) -> CostTable:
    """Experiment and scale to core seconds; measured if every run of that scale has a record.

    What was measured before stays where these records only extrapolate, as long as the scale has as many runs.
    """
    return {one.name: {scale: _cost(one, scale, records) for scale in SCALES} for one in experiments()}


def _cost(experiment: Experiment, scale: Scale, records: Mapping[str, RunRecord]) -> Cost:
    wanted = experiment.cells(scale)
    done = [records[run].seconds for run in wanted if run in records]
    if len(done) == len(wanted):
        return {"core_seconds": round(sum(done), 1), "measured": True, "runs": len(wanted)}
    kept = measured_cost(experiment.name, scale)
    if kept["measured"] and kept["runs"] == len(wanted):
        return kept
    mine = {run for other in SCALES for run in experiment.cells(other)}
    rate = _rate({run: record for run, record in records.items() if run in mine}) or _rate(records)
    rest = sum(estimated_cost(cell.spec) for run, cell in wanted.items() if run not in records)
    return {"core_seconds": round(sum(done) + rest * rate, 1), "measured": False, "runs": len(wanted)}


def _rate(records: Mapping[str, RunRecord]) -> float:
    """Seconds per unit of work; 0 without records."""
    work = sum(estimated_cost(record.spec) for record in records.values())
    return sum(record.seconds for record in records.values()) / work if work else 0.0
