"""Our laws against accuracies that others measured: routed and gated linear attention, and the authors' grids.

Numbers of other groups are in `published/`, each file with its source. They were seen before any of the formulas below
was written down, and every variant that was tried is listed, so this is a comparison and not a blind test.

The authors' repository, github.com/yuvalko1/mamba-recall-scaling-laws (at b3a4295), has a folder `saved_runs_data` with
FAMILY/RUN/accuracy_grid__SPLIT.npy: an array [seed, x, y], nan where a setting is infeasible. The files do not name
their axes; those below are the axes of the authors' configuration files. Their figures use the validation split and
the largest accuracy over the seeds.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlog1py, xlogy

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.compare import Comparison, compare_laws
from recallscope.studies.markdown import table
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.extremes import success_integral
from recallscope.theory.law import LAWS, Law
from recallscope.theory.problem import Array

VOCAB_SIZE = 8192  # of zoology's protocol; keys are one half of the vocabulary and values the other
VALUES = VOCAB_SIZE // 2
KEY_DIM, VALUE_DIM = 12, 48  # of a routed memory: per head, and over all four heads
FEW = 16  # routed memories whose keys still fit into the model: 12 * 16 = 192 directions for d_model = 128
Formula = Callable[["Measured"], Array]


@dataclass(frozen=True)
class Measured:
    """Accuracy [setting, number of facts] of one family of models; `size` is its memories, or its width."""

    size: Array
    facts: Array
    accuracy: Array


@dataclass(frozen=True)
class Variant:
    """One formula for the accuracy, and why somebody might expect it."""

    name: str
    reason: str
    formula: Formula


@dataclass(frozen=True)
class Errors:
    """Absolute errors of a variant over some settings."""

    variant: Variant
    settings: int
    mean: float
    largest: float


def read_published(name: str) -> list[dict[str, str]]:
    """The rows of a file in `published/`, without its comments."""
    text = files("recallscope.studies").joinpath("published", name).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def facts_of(row: Mapping[str, str]) -> list[int]:
    """The numbers of facts that a file has columns for: n4, n8, ..."""
    return [int(name[1:]) for name in row if name[0] == "n" and name[1:].isdigit()]


def routed_memories() -> Measured:
    """Routed linear attention: 2 to 256 memories of 12 by 48 entries, 4 to 1,024 facts."""
    rows = read_published("routed_memories.csv")
    return _measured(rows, [float(row["memories"]) for row in rows])


def gated_linear_attention() -> Measured:
    """GLA as published, two heads: of each width the learning rate with the best mean accuracy."""
    rows = [row for row in read_published("zoology_protocol.csv") if row["model"] == "gla"]
    best: dict[str, dict[str, str]] = {}
    for row in rows:
        if row["d_model"] not in best or _mean(row) > _mean(best[row["d_model"]]):
            best[row["d_model"]] = row
    return _measured(list(best.values()), [float(width) for width in best])


def _mean(row: Mapping[str, str]) -> float:
    return float(np.mean([float(row[f"n{n}"]) for n in facts_of(row)]))


def _measured(rows: Sequence[Mapping[str, str]], sizes: Sequence[float]) -> Measured:
    facts = facts_of(rows[0])
    accuracy = np.array([[float(row[f"n{n}"]) for n in facts] for row in rows])
    return Measured(np.array(sizes)[:, None], np.array(facts, float)[None, :], accuracy)


def _routed(pairs: Callable[[Array], Array], competitors: int, entries: int = KEY_DIM * VALUE_DIM) -> Formula:
    """SNR² = memories * entries / pairs: every entry of every memory holds facts alike."""
    return lambda m: success_integral(np.sqrt(m.size * entries / pairs(m.facts)), competitors)


def binomial_routing(measured: Measured) -> Array:
    """Routing sends each of the other facts to the query's memory with chance 1 / memories, independently."""
    most = int(measured.facts.max())
    others = np.arange(most)
    chance = success_integral(np.sqrt(KEY_DIM * VALUE_DIM / np.maximum(others, 1e-9)), VOCAB_SIZE)
    n, p = measured.facts[..., None] - 1, 1 / measured.size[..., None]
    ways = gammaln(n + 1) - gammaln(others + 1) - gammaln(np.maximum(n - others, 0) + 1)
    weight = np.where(others <= n, np.exp(ways + xlogy(others, p) + xlog1py(np.maximum(n - others, 0), -p)), 0)
    return np.asarray((weight * chance).sum(-1))


def _gla(pairs_per_fact: int, competitors: int) -> Formula:
    """SNR² = N D / pairs with N = width / 4 key dimensions per head, and D = width over both heads."""
    return lambda m: success_integral(np.sqrt(m.size**2 / 4 / (pairs_per_fact * m.facts)), competitors)


ROUTED = (
    Variant("all entries, V", "every entry of every memory is used; V competitors", _routed(lambda n: n, VOCAB_SIZE)),
    Variant("all entries, V/2", "as before; only values compete", _routed(lambda n: n, VALUES)),
    Variant("other facts, V", "n - 1 facts interfere", _routed(lambda n: n - 1, VOCAB_SIZE)),
    Variant("facts and neighbours, V", "(value, next key) pairs interfere too", _routed(lambda n: 2 * n, VOCAB_SIZE)),
    Variant("one head, V", "only one head's 12 value dimensions", _routed(lambda n: n, VOCAB_SIZE, KEY_DIM * 12)),
    Variant("keys of all heads, V", "48 key dimensions", _routed(lambda n: n, VOCAB_SIZE, 48 * VALUE_DIM)),
    Variant("binomial, V", "a memory gets a binomial number of the facts", binomial_routing),
)  # fmt: skip
GLA = (
    Variant("facts and neighbours, V/2", "(value, next key) pairs interfere too; only values compete", _gla(2, VALUES)),
    Variant("facts and neighbours, V", "as before; all tokens compete", _gla(2, VOCAB_SIZE)),
    Variant("facts, V/2", "only facts interfere", _gla(1, VALUES)),
    Variant("facts, V", "only facts interfere; all tokens compete", _gla(1, VOCAB_SIZE)),
)  # fmt: skip


def errors(measured: Measured, variants: Sequence[Variant], largest_size: float = np.inf) -> Iterator[Errors]:
    """How far each variant is from the measurements, up to a size."""
    here = np.broadcast_to(measured.size <= largest_size, measured.accuracy.shape)
    for variant in variants:
        gaps = np.abs(variant.formula(measured) - measured.accuracy)[here]
        yield Errors(variant, gaps.size, float(gaps.mean()), float(gaps.max()))


# The tables of docs/OTHER_GROUPS.md.


def routed_table(runs: PaperRuns, page: str = "") -> Iterator[str]:
    """A row per formula for routed memories: over the few memories whose keys have room, and over all."""
    few, every = (list(errors(routed_memories(), ROUTED, size)) for size in (FEW, np.inf))
    columns = [
        "formula",
        "why",
        f"MAE, up to {FEW} memories ({few[0].settings})",
        f"MAE, all ({every[0].settings})",
        "max",
    ]
    rows = (
        [a.variant.name, a.variant.reason, f"{a.mean:.3f}", f"{b.mean:.3f}", f"{b.largest:.3f}"]
        for a, b in zip(few, every, strict=True)
    )
    yield from table(columns, rows)


def gla_table(runs: PaperRuns, page: str = "") -> Iterator[str]:
    """A row per formula for GLA as published."""
    found = list(errors(gated_linear_attention(), GLA))
    rows = ([one.variant.name, one.variant.reason, f"{one.mean:.3f}", f"{one.largest:.3f}"] for one in found)
    yield from table(["formula", "why", f"MAE ({found[0].settings})", "max"], rows)


def gla_settings_table(runs: PaperRuns, page: str = "") -> Iterator[str]:
    """Measured and predicted accuracy of GLA, setting by setting, by the first formula."""
    measured = gated_linear_attention()
    predicted = GLA[0].formula(measured)
    rows = (
        [f"{width:g}, {name}", *(f"{value:.3f}" for value in values)]
        for width, *both in zip(measured.size.ravel(), measured.accuracy, predicted, strict=True)
        for name, values in zip(("measured", "predicted"), both, strict=True)
    )
    yield from table(["width", *(f"{n:g} facts" for n in measured.facts.ravel())], rows)


# The grids of the paper's authors

Split = Literal["val", "test", "train"]
Over = Literal["best", "mean"]


@dataclass(frozen=True)
class Family:
    """Axes in the order of the arrays, sizes that all settings share, and whose weights they are."""

    axes: Mapping[str, Sequence[int]]
    shared: Mapping[str, Any]
    weights: Literal["linear_mamba", "mamba", "designed"] = "linear_mamba"


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
            _D_N, {"task": task, **sizes}, "designed" if weights == "designed" else "linear_mamba"
        )
        for task in ("mqar", "ar")
        for weights in ("trained", "designed")
        for i, sizes in enumerate(_REGIMES)
    },
    **{
        f"MQAR__D_N__full_trained__regime_{i}": Family(_D_N, {"task": "mqar", **sizes}, "mamba")
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

    def grid(self, over: Over = "best") -> AccuracyGrid:
        """Accuracy over the family's axes: the largest of the seeds, as in the authors' figures, or their mean."""
        there = ~np.isnan(self.accuracy)
        counts = there.sum(axis=0)
        best = np.where(there, self.accuracy, -np.inf).max(axis=0)
        mean = np.where(there, self.accuracy, 0.0).sum(axis=0) / np.maximum(counts, 1)
        family = FAMILIES[self.family]
        grid = AccuracyGrid.over(family.axes)
        accuracy = np.where(counts > 0, best if over == "best" else mean, np.nan)
        cells = grid.cells.assign(**family.shared, test_accuracy=accuracy.ravel(), seeds=counts.ravel())
        source = f"{self.family}, {over} of {len(self.accuracy)} seeds"
        return replace(grid, cells=cells, source=source, reduce=over)


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
    numbers = np.isrealobj(array) and np.issubdtype(array.dtype, np.number)
    if not numbers or array.ndim not in (2, 3) or array.shape[-2:] != wanted:
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
    return [law for law in LAWS if law.weights == "trained" and weights in law.models]


def compare_files(folder: Path, split: Split = "val", over: Over = "best") -> Iterator[FileComparison]:
    """Every grid file of a folder, with the errors of the laws of its architecture."""
    for path in find_files(folder, split)[0]:
        file = read_grid(path)
        grid = file.grid(over)
        compared = tuple(compare_laws(grid, laws_about(FAMILIES[file.family].weights)))
        yield FileComparison(file, len(grid.measured), compared)
