"""The accuracy grids that the paper's authors published with their code, read from their files and put beside our laws.

Their repository, github.com/yuvalko1/mamba-recall-scaling-laws (at b3a4295), has a folder `saved_runs_data` with
FAMILY/RUN/accuracy_grid__SPLIT.npy: an array [seed, x, y], nan where a setting is infeasible. The files do not name
their axes; those below are the axes of the authors' configuration files. Their figures use the validation split and
the largest accuracy over the seeds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.compare import Comparison, compare_laws
from recallscope.theory.law import LAWS, Law

Split = Literal["val", "test", "train"]
Over = Literal["max", "mean"]


@dataclass(frozen=True)
class Family:
    """Axes in the order of the arrays, sizes that all settings share, and whose weights they are."""

    axes: Mapping[str, Sequence[int]]
    shared: Mapping[str, Any]
    weights: Literal["linear", "full", "designed"] = "linear"


_D_N = {"embed_dim": range(2, 65, 2), "state_dim": range(2, 33)}
_REGIMES = (
    {"vocab_size": 512, "num_facts": 16},
    {"vocab_size": 512, "num_facts": 32},
    {"vocab_size": 1024, "num_facts": 16},
)
_VOCABULARIES = (50000, 32374, 20962, 13574, 8788, 5690, 3686, 2386, 1546, 1002)
_LENGTHS = (4000, 3000, 2000, 1000)
_DEEP = {"state_dim": range(2, 17), "num_layers": range(1, 6)}

FAMILIES: dict[str, Family] = {
    **{
        f"{task.upper()}__D_N__linear_{weights}__regime_{i}": Family(
            _D_N, {"task": task, **sizes}, "designed" if weights == "designed" else "linear"
        )
        for task in ("mqar", "ar")
        for weights in ("trained", "designed")
        for i, sizes in enumerate(_REGIMES)
    },
    **{
        f"MQAR__D_N__full_trained__regime_{i}": Family(_D_N, {"task": "mqar", **sizes}, "full")
        for i, sizes in enumerate(_REGIMES)
    },
    "MQAR__D_N__linear_trained__mech_interp": Family(
        {"embed_dim": range(4, 65, 4), "state_dim": range(2, 33, 2)},
        {"task": "mqar", "vocab_size": 256, "num_facts": 16},
    ),
    **{
        f"{task.upper()}__N_Lambda__linear_trained": Family(
            _DEEP, {"task": task, "vocab_size": 512, "num_facts": 80, "embed_dim": 64}
        )
        for task in ("mqar", "ar")
    },
    **{
        f"MQAR__N_M__linear_trained__regime_0__{pattern}": Family(
            {"state_dim": range(2, 11), "num_heads": range(1, 7)},
            {"task": "mqar", "vocab_size": 512, "num_facts": 16, "embed_dim": 60, "head_pattern": pattern},
        )
        for pattern in ("MHA", "MQA", "MKA", "MVA")
    },
    "MQAR__V_L__linear_trained": Family(
        {"vocab_size": _VOCABULARIES, "num_facts": tuple(length // 4 for length in _LENGTHS)},
        {"task": "mqar", "embed_dim": 150, "state_dim": 75},
    ),
}
"""Families that a law applies to: none does to repeated keys, or to the ablation of components."""


@dataclass(frozen=True)
class GridFile:
    """One file: where it is, its family, and the accuracies [seed, x, y] it holds."""

    path: Path
    family: str
    accuracy: NDArray[np.float64]

    def grid(self, over: Over = "max") -> AccuracyGrid:
        """Accuracy over the family's axes: the largest of the seeds, as in the authors' figures, or their mean."""
        there = ~np.isnan(self.accuracy)
        counts = there.sum(axis=0)
        if over == "max":
            best = np.where(there, self.accuracy, -np.inf).max(axis=0)
        else:
            best = np.where(there, self.accuracy, 0.0).sum(axis=0) / np.maximum(counts, 1)
        family = FAMILIES[self.family]
        axes = {name: tuple(values) for name, values in family.axes.items()}
        accuracy = np.where(counts > 0, best, np.nan)
        return AccuracyGrid(
            axes, accuracy, counts, f"{self.family}, {over} of {len(self.accuracy)} seeds", family.shared
        )


@dataclass(frozen=True)
class FileComparison:
    """A file and how far each law is from it, the closest first."""

    file: GridFile
    settings: int
    laws: tuple[Comparison, ...]


def find_files(folder: Path, split: Split = "val") -> tuple[list[Path], list[Path]]:
    """The grid files of a split below a folder: those of a family a law applies to, and the others."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}. Name the folder saved_runs_data of the authors' repository.")
    found = sorted(path for path in folder.rglob(f"accuracy_grid__{split}.npy") if not path.is_symlink())
    if not found:
        raise ValueError(
            f"{folder} has no file accuracy_grid__{split}.npy at any depth. Expected "
            f"FAMILY/RUN/accuracy_grid__{split}.npy, as in saved_runs_data of the authors' repository."
        )
    known = [path for path in found if family_of(path)]
    return known, [path for path in found if path not in known]


def family_of(path: Path) -> str | None:
    """The family whose folder a file is in; None if no law applies to it."""
    return next((part for part in reversed(path.parts[:-1]) if part in FAMILIES), None)


def read_grid(path: Path) -> GridFile:
    """Read one file, and check that it has the shape of its family and holds accuracies."""
    family = family_of(path)
    if family is None:
        raise ValueError(f"{path}: no folder above it is a family that a law applies to: {', '.join(FAMILIES)}.")
    try:
        array = np.load(path, allow_pickle=False)  # noqa: TID251 (nothing is unpickled)
    except (ValueError, OSError, EOFError) as error:
        raise ValueError(
            f"{path} is not a plain array of numbers ({error}). Arrays of objects are never read."
        ) from error
    wanted = tuple(len(values) for values in FAMILIES[family].axes.values())
    if array.dtype.kind not in "fiu" or array.ndim not in (2, 3) or array.shape[-2:] != wanted:
        axes = " x ".join(f"{len(values)} {name}" for name, values in FAMILIES[family].axes.items())
        raise ValueError(
            f"{path} has shape {array.shape} of {array.dtype}. The family {family} has seeds x {axes} numbers."
        )
    accuracy = array.reshape(-1, *wanted).astype(float)
    if np.nanmin(accuracy, initial=0) < 0 or np.nanmax(accuracy, initial=0) > 1:
        raise ValueError(f"{path} has values outside of 0 to 1, which are not accuracies.")
    return GridFile(path, family, accuracy)


def laws_about(weights: str) -> list[Law]:
    """Laws of the catalogue for these weights: trained linear Mamba, trained full Mamba, or hand-constructed."""
    if weights == "designed":
        return [law for law in LAWS if law.weights == "designed"]
    stored = {"linear": {"linear", "linear_mamba"}, "full": {"full", "mamba"}}[weights]
    return [law for law in LAWS if law.weights == "trained" and stored.intersection(law.models)]


def compare_files(folder: Path, split: Split = "val", over: Over = "max") -> Iterator[FileComparison]:
    """Every grid file of a folder, with the errors of the laws of its architecture."""
    for path in find_files(folder, split)[0]:
        file = read_grid(path)
        grid = file.grid(over)
        compared = tuple(compare_laws(grid, laws_about(FAMILIES[file.family].weights)))
        yield FileComparison(file, sum(1 for _ in grid.cells()), compared)
