"""What a store holds of the paper's experiments: records by part, circuits measured beside them, models looked into.

STORE/runs/HASH/record.json           the trainings
STORE/designed/NAME.json              designed circuits, measured (no training, so no record)
STORE/inside/HASH.npz, HASH.json      arrays and scores of a trained model that was looked into

Reading needs no torch, so that every figure can be redrawn without it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recallscope.analysis.accuracy_grid import row_of
from recallscope.atomic import write_atomically
from recallscope.records import RunRecord
from recallscope.runs.store import RunStore
from recallscope.sweeps.paper_grids import EXPERIMENTS, INSIDE, DesignedPart, Part, Scale

Row = dict[str, Any]
INSIDE_SEQUENCES = 500  # behind every score of a model that was looked into
_CIRCUIT = ("embed_dim", "state_dim", "seed", "test_accuracy", "test_queries")  # what differs between measured circuits


@dataclass(frozen=True)
class Inside:
    """One model that was looked into: its record, arrays to draw, and scores."""

    record: RunRecord
    arrays: dict[str, NDArray[Any]]
    scores: dict[str, Any]


class PaperRuns:
    """A store read as the experiments of the paper at one scale."""

    def __init__(self, store: RunStore, scale: Scale) -> None:
        self.store = store
        self.scale = scale

    @cached_property
    def parts(self) -> dict[str, Part]:
        """All parts of all experiments at this scale, by label."""
        return {part.label: part for e in EXPERIMENTS.values() for part in e.parts[self.scale]}

    @cached_property
    def designed_parts(self) -> dict[str, DesignedPart]:
        """The parts that are not trained, by label."""
        return {part.label: part for e in EXPERIMENTS.values() for part in e.designed[self.scale]}

    @cached_property
    def _records(self) -> dict[str, RunRecord]:
        return {record.run: record for record in self.store.records()}

    def records(self, label: str) -> list[RunRecord]:
        """Finished runs of a part, in the order of its grid; none if this scale has no such part."""
        if label not in self.parts:
            return []
        cells = self.parts[label].grid.cells()
        return [self._records[cell.run] for cell in cells if cell.run in self._records]

    def rows(self, label: str) -> list[Row]:
        """The same as measurements, for grids and fits."""
        return [row_of(record) for record in self.records(label)]

    def designed(self, label: str) -> list[Row]:
        """Measured circuits of a part; none if they were not measured."""
        if label not in self.designed_parts:
            return []
        path = designed_path(self.store, label, self.scale)
        return _read_designed(path) if path.exists() else []

    def inside(self) -> list[Inside]:
        """The mechanism's models that have been looked into, in the order of the paper."""
        found = []
        for record in self.records(INSIDE):
            arrays, scores = inside_paths(self.store, record.run)
            if arrays.exists() and scores.exists():
                with np.load(arrays) as kept:
                    found.append(Inside(record, dict(kept), json.loads(scores.read_text())))
        return found


def designed_path(store: RunStore, label: str, scale: Scale) -> Path:
    """Where the measured circuits of a part are kept."""
    name = "".join(letter if letter.isalnum() else "-" for letter in label.lower()).strip("-").replace("--", "-")
    return store.root / "designed" / f"{name}-{scale}.json"


def inside_paths(store: RunStore, run: str) -> tuple[Path, Path]:
    """Where arrays and scores of a run are kept."""
    name = store.folder(run).name  # a former one in stores that were not migrated
    return store.root / "inside" / f"{name}.npz", store.root / "inside" / f"{name}.json"


def measure_designed(store: RunStore, part: DesignedPart, scale: Scale) -> list[Row]:
    """Measure the circuits of a part and keep them; what is there already is not measured again.

    Paper: App. E.1 (`app-subsec:designed-weights`), column (a) of Fig. 1 (`fig:scaling-laws-2d-dims`).
    """
    path = designed_path(store, part.label, scale)
    if path.exists():
        return _read_designed(path)
    from recallscope.analysis.designed import designed_rows

    rows = list(
        designed_rows(
            part.task,
            part.embed_dims,
            part.state_dims,
            seeds=range(part.draws),
            num_sequences=part.num_sequences // part.draws or 1,
        )
    )
    write_designed(path, part, rows)
    return rows


def write_designed(path: Path, part: DesignedPart, rows: list[Row]) -> None:
    """Measured circuits as JSON, what they share once and what differs as a table."""
    shared = {name: value for name, value in rows[0].items() if name not in _CIRCUIT}
    cells = [[row[name] for name in _CIRCUIT] for row in rows]
    about = {"label": part.label, "draws": part.draws, "shared": shared, "columns": _CIRCUIT, "cells": cells}
    write_atomically(path, json.dumps(about).replace("], [", "],\n[").encode() + b"\n")


def _read_designed(path: Path) -> list[Row]:
    kept = json.loads(path.read_text())
    return [kept["shared"] | dict(zip(kept["columns"], cell, strict=True)) for cell in kept["cells"]]


def look_inside(store: RunStore, record: RunRecord, *, num_sequences: int = INSIDE_SEQUENCES) -> None:
    """Read a trained model's weights from the store; keep what its figures draw, and its scores.

    Paper: Sec. 3.2 (`subsec:mech-interp`).
    """
    arrays_path, scores_path = inside_paths(store, record.run)
    if arrays_path.exists() and scores_path.exists():
        return
    import io

    import torch

    from recallscope.interp import inspect_model
    from recallscope.interp.picture_arrays import picture_arrays
    from recallscope.runs.store import WEIGHTS
    from recallscope.tasks import draw_batch
    from recallscope.train.weights import read_weights

    model, task = read_weights(store.folder(record.run) / WEIGHTS)
    scores = inspect_model(model, task, torch.Generator().manual_seed(0), num_sequences=num_sequences)
    arrays = picture_arrays(model, draw_batch(task, 1, torch.Generator().manual_seed(0)), task)
    kept, named = io.BytesIO(), dict[str, Any](arrays)
    np.savez_compressed(kept, **named)
    write_atomically(arrays_path, kept.getvalue())
    write_atomically(scores_path, json.dumps(scores, indent=1).encode() + b"\n")
