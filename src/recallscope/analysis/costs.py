"""What experiments cost: measured where their runs are in a store, extrapolated by the amount of work elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

from recallscope.records import RunRecord
from recallscope.runs.plan import estimated_cost
from recallscope.specs import RunSpec
from recallscope.sweeps.paper_grids import EXPERIMENTS, SCALES, PaperExperiment, Scale


def cost_table(records: Mapping[str, RunRecord]) -> dict[str, dict[str, dict[str, float | bool]]]:
    """Experiment and scale to core seconds; measured if every run of that scale has a record."""
    return {
        name: {scale: _cost(experiment, scale, records) for scale in SCALES} for name, experiment in EXPERIMENTS.items()
    }


def _cost(experiment: PaperExperiment, scale: Scale, records: Mapping[str, RunRecord]) -> dict[str, float | bool]:
    wanted = _specs(experiment, scale)
    done = [records[run].seconds for run in wanted if run in records]
    if len(done) == len(wanted):
        return {"core_seconds": round(sum(done), 1), "measured": True}
    seconds, work = 0.0, 0.0
    for other in SCALES:
        for run, spec in _specs(experiment, other).items():
            if run in records:
                seconds, work = seconds + records[run].seconds, work + estimated_cost(spec)
    rest = sum(estimated_cost(spec) for run, spec in wanted.items() if run not in records)
    rate = seconds / work if work else _overall_rate(records)
    return {"core_seconds": round(sum(done) + rest * rate, 1), "measured": False}


def _specs(experiment: PaperExperiment, scale: Scale) -> dict[str, RunSpec]:
    return {cell.run: cell.spec for part in experiment.parts[scale] for cell in part.grid.cells()}


def _overall_rate(records: Mapping[str, RunRecord]) -> float:
    work = sum(estimated_cost(record.spec) for record in records.values())
    return sum(record.seconds for record in records.values()) / work if work else 0.0
