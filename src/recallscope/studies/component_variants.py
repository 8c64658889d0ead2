"""Mambas between the linear and the full one, as they are trained, and what the runs of a store say of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import nan
from typing import Any

import numpy as np
from pandas import DataFrame, concat
from scipy.special import stdtrit

from recallscope.analysis.seed_noise import Ends, MeanGap, mean_gap, seed_noise
from recallscope.analysis.table import recalls
from recallscope.presets import Fields
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.law import DIMENSIONS, LAWS, find_law

Cell = tuple[int, int, int, int]  # V, N_f, D, N
FULL: Fields = {
    "gate": True, "activation": "silu", "transition": "selective", "norm": "rms", "residual": True, "skip": True,
    "conv_bias": True, "conv_width": 2, "expand": 2,
}  # fmt: skip
LINEAR: Fields = FULL | {
    "gate": False, "activation": "none", "transition": "identity", "norm": "none", "residual": False, "skip": False,
    "conv_bias": False,
}  # fmt: skip
_UNGATED = LINEAR | {"activation": "silu", "transition": "selective"}  # an ungated block with skip may not train at all


@dataclass(frozen=True, eq=False)
class Variant:
    """A Mamba with some of its parts; `rate` is the best learning rate of its search."""

    label: str
    fields: Fields
    rate: float = 0.01

    @property
    def full(self) -> bool:
        """Whether it is counted from the full model."""
        return self.label.startswith("full")

    @property
    def changes(self) -> int:
        """Parts in which it differs from the model it is counted from."""
        base = FULL if self.full else LINEAR
        return sum(self.fields[name] != base[name] for name in base)

    @property
    def gated(self) -> bool:
        """Whether the query can choose among the channels."""
        return bool(self.fields["gate"])


def _on(label: str, rate: float = 0.01, **parts: Any) -> Variant:
    return Variant(f"linear + {label}", LINEAR | parts, rate)


def _off(label: str, rate: float = 0.01, **parts: Any) -> Variant:
    return Variant(f"full - {label}", FULL | parts, rate)


FIRST = (  # what the findings need
    Variant("full", FULL),
    Variant("linear", LINEAR),
    _on("gate", gate=True),
    _on("SiLU", activation="silu"),
    _on("selective", transition="selective"),
    Variant("linear + SiLU + selective", _UNGATED, 0.003),
    Variant("linear + SiLU + selective, expand 4", _UNGATED | {"expand": 4}),
    Variant("full, expand 4", FULL | {"expand": 4}),
    _off("gate", gate=False),
    _off("gate - skip", gate=False, skip=False),
    Variant("linear + SiLU + selective, expand 1", _UNGATED | {"expand": 1}),
    Variant("full, expand 1", FULL | {"expand": 1}),
)
REST = (  # every other part, on alone and off alone
    _on("selective write (no decay)", transition="write"),
    _on("norm", norm="rms"),
    _on("residual", residual=True),
    _on("skip", skip=True),
    _on("conv bias", conv_bias=True),
    Variant("linear, conv width 4", LINEAR | {"conv_width": 4}),
    _off("SiLU", activation="none"),
    _off("selective", transition="identity"),
    _off("decay", transition="write"),
    _off("norm", norm="none"),
    _off("residual", residual=False),
    _off("skip", skip=False),
    _off("conv bias", conv_bias=False),
    Variant("full, conv width 4", FULL | {"conv_width": 4}),
)
PAIRS = (  # which of its partners the gate needs, and whether linear channels help without any
    _on("gate + SiLU", gate=True, activation="silu"),
    _on("gate + selective", gate=True, transition="selective"),
    _on("gate + SiLU + selective", gate=True, activation="silu", transition="selective"),
    Variant("linear, expand 1", LINEAR | {"expand": 1}),
    Variant("linear, expand 4", LINEAR | {"expand": 4}),
    _on("gate, expand 4", gate=True, expand=4),
)
VARIANTS = (*FIRST, *REST, *PAIRS)
_BY_FIELDS = {tuple(variant.fields.values()): variant for variant in VARIANTS}


def variant_of(fields: Mapping[str, Any]) -> Variant:
    """Which variant a run is, from the parts its model has."""
    return _BY_FIELDS[tuple(fields[name] for name in FULL)]


def side_by_side(variants: Iterable[Variant]) -> dict[str, list[Any]]:
    """The fields of some variants as axes of a grid that are walked together."""
    variants = list(variants)
    return {name: [variant.fields[name] for variant in variants] for name in FULL}


# What was measured


@dataclass(frozen=True)
class Measured:
    """All seeds of a variant in one cell."""

    variant: Variant
    cell: Cell
    rows: DataFrame

    @property
    def seeds(self) -> tuple[float, ...]:
        """The accuracy of each."""
        return tuple(self.rows["test_accuracy"])

    @property
    def mean(self) -> float:
        """Of the seeds."""
        return float(np.mean(self.seeds))

    @property
    def interval(self) -> Ends:
        """95% interval of the mean by these seeds alone; nan if there is one."""
        count = len(self.seeds)
        half = float(stdtrit(count - 1, 0.975) * np.std(self.seeds, ddof=1) / count**0.5) if count > 1 else nan
        return max(self.mean - half, 0.0), min(self.mean + half, 1.0)

    @property
    def learned(self) -> DataFrame:
        """The runs that do more than guess."""
        return self.rows[recalls(self.rows)]


Found = dict[tuple[Cell, str], Measured]  # by cell and label of the variant


def measured(rows: DataFrame) -> Found:
    """The runs by cell and variant."""
    found = {}
    for _, members in rows.groupby([*DIMENSIONS, *FULL], sort=False) if len(rows) else ():
        V, N_f, D, N = (int(members[name].iloc[0]) for name in DIMENSIONS)
        variant = variant_of(members.iloc[0])
        found[(V, N_f, D, N), variant.label] = Measured(variant, (V, N_f, D, N), members)
    return found


def gap(found: Found, more: str, less: str) -> MeanGap | None:
    """Accuracy of one variant less that of another, over the cells that have both; None if there is none.

    Runs that only guess are left out: they say nothing of what a variant can hold.
    """
    learned = {key: one.learned for key, one in found.items() if key[1] in (more, less) and len(one.learned)}
    cells = [cell for cell, label in learned if label == more and (cell, less) in learned]
    if not cells:
        return None
    pairs = [((cell, more), (cell, less)) for cell in cells]
    values = {key: rows["test_accuracy"].to_numpy() for key, rows in learned.items()}
    used = [learned[key] for pair in pairs for key in pair]
    return mean_gap(pairs, values, seed_noise(concat(used)))


# Laws to stand beside them

ND = "N D law"
REFERENCES = {"linear law": "trained-sharing", ND: "full-nd", "bank law": "full-bank"}


@cache
def references(cell: Cell) -> dict[str, float]:
    """What the laws say of the linear model, of a state read without a gate, and of two banks, at expand 2."""
    sizes = dict(zip(DIMENSIONS, cell, strict=True))
    return {label: float(find_law(name)(**sizes)) for label, name in REFERENCES.items() if name in LAWS}


LABELS = "components, "  # how the names of all parts begin
SEARCH = f"{LABELS}learning rates"


def measuring(runs: PaperRuns) -> list[str]:
    """Labels of all parts but the search."""
    return [label for label in runs.parts if label.startswith(LABELS) and label != SEARCH]


def found_in(runs: PaperRuns) -> Found:
    """All that was measured."""
    return measured(runs.rows(*measuring(runs)))
