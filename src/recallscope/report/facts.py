"""What stands behind a report: how many runs, how long they took, with which versions, and what was cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recallscope.analysis.paper_runs import PaperRuns
from recallscope.records import RunRecord
from recallscope.sweeps.paper_grids import EXPERIMENTS, Part, Scale


@dataclass(frozen=True)
class PartFacts:
    """One grid of an experiment: how much of it is there, and what is less than the paper's."""

    label: str
    state: str  # such as "14 of 14 runs"
    cut: str = ""


@dataclass(frozen=True)
class RunFacts:
    """The runs of one scale that a store holds."""

    scale: Scale
    runs: int
    asked: int
    core_seconds: float
    environment: tuple[tuple[str, tuple[str, ...]], ...]  # what the records say of themselves: name, all its values
    parts: Mapping[str, tuple[PartFacts, ...]]  # by experiment
    store: str = "STORE"  # as the commands of the page are to spell it


def run_facts(runs: PaperRuns, store: str = "") -> RunFacts:
    """Count what is there. Runs that several experiments share count once."""
    asked: dict[str, frozenset[str]] = {
        part.label: frozenset(cell.run for cell in part.grid.cells()) for part in runs.parts.values()
    }
    records = {record.run: record for label in asked for record in runs.records(label)}

    def trained(part: Part) -> PartFacts:
        cells = asked[part.label]
        return PartFacts(part.label, f"{len(cells & records.keys())} of {len(cells)} runs", part.cut)

    return RunFacts(
        scale=runs.scale,
        runs=len(records),
        asked=len(frozenset().union(*asked.values())),
        core_seconds=core_seconds(records.values()),
        environment=environments(records.values()),
        parts={
            name: (
                *(
                    PartFacts(part.label, "measured" if runs.designed(part.label) else "not measured")
                    for part in experiment.designed[runs.scale]
                ),
                *(trained(part) for part in experiment.parts[runs.scale]),
            )
            for name, experiment in EXPERIMENTS.items()
        },
        store=store or str(runs.store.root),
    )


def core_seconds(records: Iterable[RunRecord]) -> float:
    """Wall time times threads, added up."""
    return sum(
        record.seconds * int(threads if (threads := record.environment.get("threads", "1")).isdecimal() else 1)
        for record in records
    )


def environments(records: Iterable[RunRecord]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Every name of the records' environments with all values it takes, in order."""
    found: dict[str, set[str]] = {}
    for record in records:
        for name, value in record.environment.items():
            found.setdefault(name, set()).add(value)
    return tuple((name, tuple(sorted(values))) for name, values in sorted(found.items()))
