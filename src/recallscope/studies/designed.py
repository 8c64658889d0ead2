"""Designed circuits, measured: accuracy over D and N without any training, kept in STORE/designed.

Paper: App. E.1 (`app-subsec:designed-weights`), column (a) of Fig. 1 (`fig:scaling-laws-2d-dims`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recallscope.atomic import write_atomically
from recallscope.specs import TaskSpec

_VARIED = ("embed_dim", "state_dim", "seed", "test_accuracy", "test_queries")  # what differs between the circuits


@dataclass(frozen=True)
class DesignedPart:
    """A part of an experiment that is not trained: a task, the D and N that circuits are written for, and how often."""

    label: str
    task: TaskSpec
    embed_dims: tuple[int, ...]
    state_dims: tuple[int, ...]
    draws: int
    num_sequences: int

    def path(self, root: Path, scale: str) -> Path:
        """The file of the measured circuits in a store."""
        name = "".join(letter if letter.isalnum() else "-" for letter in self.label.lower()).strip("-")
        return root / "designed" / f"{name.replace('--', '-')}-{scale}.json"

    def measure(self, root: Path, scale: str) -> None:
        """Measure the circuits and keep them in a store; what is there already is not measured again."""
        if not self.path(root, scale).exists():
            sequences = self.num_sequences // self.draws or 1
            rows = designed_rows(
                self.task, self.embed_dims, self.state_dims, seeds=range(self.draws), num_sequences=sequences
            )
            self.write(root, scale, list(rows))

    def write(self, root: Path, scale: str, rows: list[dict[str, Any]]) -> None:
        """Keep measured circuits as JSON: what they share once, what differs as a table."""
        shared = {name: value for name, value in rows[0].items() if name not in _VARIED}
        cells = [[row[name] for name in _VARIED] for row in rows]
        about = {"label": self.label, "draws": self.draws, "shared": shared, "columns": _VARIED, "cells": cells}
        write_atomically(self.path(root, scale), json.dumps(about).replace("], [", "],\n[").encode() + b"\n")

    def read(self, root: Path, scale: str) -> list[dict[str, Any]]:
        """Measured circuits of a store; none if they were not measured."""
        path = self.path(root, scale)
        if not path.exists():
            return []
        kept = json.loads(path.read_text())
        return [kept["shared"] | dict(zip(kept["columns"], cell, strict=True)) for cell in kept["cells"]]


def designed_rows(
    task: TaskSpec,
    embed_dims: Iterable[int],
    state_dims: Iterable[int],
    *,
    seeds: Iterable[int] = (0,),
    num_sequences: int = 1000,
) -> Iterator[dict[str, Any]]:
    """Accuracy of the designed circuit for every D and N and every seed, from which its codes and sequences are drawn.

    Paper: App. E.1 (`app-subsec:designed-weights`).   Holds for: N <= D; other cells are left out.
    """
    import torch

    from recallscope.circuits.single import designed_circuit
    from recallscope.train.evaluate import evaluate

    fields = task.model_dump(mode="json")
    shared = {"task": fields.pop("kind"), **fields, "model": "linear_mamba", "num_layers": 1}
    embed_dims, state_dims = tuple(embed_dims), tuple(state_dims)
    for seed in seeds:
        for D in embed_dims:
            for N in (N for N in state_dims if N <= D):
                generator = torch.Generator().manual_seed(seed)
                model = designed_circuit(task.vocab_size, D, N, generator)
                score = evaluate(model, task, num_sequences, generator)
                measured = {"test_accuracy": score.accuracy, "test_queries": score.queries}
                yield shared | {"embed_dim": D, "state_dim": N, "seed": seed} | measured
