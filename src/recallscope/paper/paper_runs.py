"""What a store holds of the paper's experiments at one scale: records by part, and circuits measured beside them.

STORE/runs/HASH/record.json           the trainings
STORE/designed/NAME.json              designed circuits, measured (no training, so no record)
STORE/inside/HASH.npz, HASH.json      arrays and scores of a trained model that was inspected

Reading needs no torch, so that every figure can be redrawn without it.
"""

from __future__ import annotations

from functools import cached_property

from recallscope.analysis.accuracy_grid import row_of
from recallscope.paper.designed import DesignedPart
from recallscope.paper.experiment import Part, Rows, Scale, experiments
from recallscope.records import RunRecord
from recallscope.runs import RunStore


class PaperRuns:
    """A store read as the experiments of the paper at one scale."""

    def __init__(self, store: RunStore, scale: Scale) -> None:
        self.store = store
        self.scale = scale

    @cached_property
    def parts(self) -> dict[str, Part]:
        """All parts of all experiments at this scale, by label."""
        return {part.label: part for one in experiments() for part in one.parts(self.scale)}

    @cached_property
    def designed_parts(self) -> dict[str, DesignedPart]:
        """The parts that are not trained, by label."""
        return {part.label: part for one in experiments() for part in one.designed(self.scale)}

    @cached_property
    def _records(self) -> dict[str, RunRecord]:
        return {record.run: record for record in self.store.records()}

    def records(self, label: str) -> list[RunRecord]:
        """Finished runs of a part, in the order of its grid; none if this scale has no such part."""
        cells = self.parts[label].cells if label in self.parts else ()
        return [self._records[cell.run] for cell in cells if cell.run in self._records]

    def rows(self, label: str) -> Rows:
        """The same as measurements, for grids and fits."""
        return [row_of(record) for record in self.records(label)]

    def designed(self, label: str) -> Rows:
        """Measured circuits of a part; none if they were not measured."""
        part = self.designed_parts.get(label)
        return part.read(self.store.root, self.scale) if part else []
