"""Every law against every group of measured cells: how far each is off, where, and on how many cells."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from recallscope.analysis.accuracy_grid import Row
from recallscope.analysis.best_cells import best_cells, cell_words
from recallscope.analysis.collapse import collapsed, fit_collapse
from recallscope.analysis.paper_runs import PaperRuns
from recallscope.analysis.predicted import dimensions, law_on_cells
from recallscope.sweeps.paper_grids import EXAMPLE, FULL_EXAMPLE, LARGE_BATCH, PATTERNS, REGIMES, part_label
from recallscope.theory.law import find_law
from recallscope.theory.laws.heads import sharing_heads_law
from recallscope.theory.laws.selective import selective_law

LAWS = (
    "unified", "unified-mv", "trained", "trained-t1", "trained-t2", "trained-t3", "trained-t3max", "trained-sharing",
)  # fmt: skip
COUNTED = "trained-sharing, channels counted"
FITTED_CURVE = "Phi(x - b), a and b fitted"
FITTED_FAMILY = "D_v = D - lambda N, lambda fitted"
ALL_LINEAR = "all linear grids"
Array = NDArray[np.float64]


@dataclass(frozen=True)
class LawEntry:
    """One law on one group of cells."""

    mean_error: float  # of |measured - predicted|
    max_error: float
    bias: float  # mean of measured - predicted
    cells: int


@dataclass(frozen=True)
class LawTable:
    """Laws by groups of cells; a law that does not speak about a group has no entry there."""

    groups: tuple[str, ...]
    laws: tuple[str, ...]
    entries: Mapping[tuple[str, str], LawEntry]  # (law, group)
    notes: tuple[str, ...] = ()  # plain sentences, such as where a law fails


def law_table(runs: PaperRuns) -> LawTable:
    """All laws for trained models on all groups of cells that have runs; best of seeds."""
    cells = {group: best_cells(rows) for group, rows in _groups(runs).items() if rows}
    entries: dict[tuple[str, str], LawEntry] = {}
    misses: dict[str, list[tuple[float, Row]]] = {}
    for group, members in cells.items():
        measured = np.array([cell["test_accuracy"] for cell in members])
        for name in LAWS:
            predicted = law_on_cells(find_law(name), members)
            entries |= _entry(name, group, measured, predicted)
            if group == ALL_LINEAR:
                misses[name] = list(zip(measured - predicted, members, strict=True))
        for name, function in ((COUNTED, counted), (FITTED_CURVE, _fitted_curve), (FITTED_FAMILY, _fitted_family)):
            entries |= _entry(name, group, measured, function(members))
    laws = tuple(
        name for name in (*LAWS, COUNTED, FITTED_CURVE, FITTED_FAMILY) if any(law == name for law, _ in entries)
    )
    notes = [_where_it_fails(name, found) for name, found in misses.items()]
    return LawTable(tuple(cells), laws, entries, (*notes, *_why(runs)))


def _why(runs: PaperRuns) -> Iterator[str]:
    """What the selectivity probe found in the models that were looked into."""
    for model in runs.inside():
        spec, scores = model.record.spec.model, model.scores
        key, value, share = scores["key_variance"], scores["value_variance"], scores["selectivity"]["value_share"]
        yield (
            f"Inside the trained model (D, N) = ({spec.embed_dim}, {spec.state_dim}): key codes have "
            f"{key['measured'] / key['welch']:.2f} of a tight frame's variance, {key['measured'] / key['random']:.2f} "
            f"of random codes'; {share:.0%} of the values' energy lies in the key dimensions, and their variance is "
            f"{value['measured']:.4f} ({value['random']:.4f} by the paper's 1/D, {value['welch']:.4f} for a tight "
            f"frame in all D, {value['sharing']:.4f} by trained-sharing): keys and values are not orthogonal."
        )


def _groups(runs: PaperRuns) -> dict[str, list[Row]]:
    """Rows by group, the large group of all linear grids at batch 128 among them."""
    linear = {
        part_label("linear", task, regime): runs.rows(part_label("linear", task, regime))
        for task in ("ar", "mqar")
        for regime in REGIMES
    }
    groups: dict[str, list[Row]] = {label.removeprefix("linear "): [*rows] for label, rows in linear.items()}
    groups[ALL_LINEAR] = [row for rows in linear.values() for row in rows]
    groups["batch 32, MQAR (iii)"] = [*runs.rows(EXAMPLE)]
    groups["batch 512, AR (iii)"] = [*runs.rows(LARGE_BATCH)]
    groups["large V"] = [*runs.rows("large vocabularies")]
    for label in ("layers MQAR", "layers AR"):
        groups[label] = [row for row in runs.rows(label) if row["num_layers"] > 1]
    for label in PATTERNS:
        groups[label] = [row for row in runs.rows(label) if row["num_heads"] > 1]
    groups[FULL_EXAMPLE] = [*runs.rows(FULL_EXAMPLE)]
    return groups


def _entry(law: str, group: str, measured: Array, predicted: Array | None) -> dict[tuple[str, str], LawEntry]:
    if predicted is None:
        return {}
    errors = (measured - predicted)[~np.isnan(predicted)]
    if not len(errors):
        return {}
    size = np.abs(errors)
    return {(law, group): LawEntry(float(size.mean()), float(size.max()), float(errors.mean()), len(errors))}


def counted(cells: Sequence[Row]) -> Array | None:
    """What `sharing_heads_law` says of many-headed cells; other cells have no such law.

    Paper: takes the place of Thm 4.7 (`thm:multi-head-recall`).
    """
    if not all(cell.get("head_pattern") for cell in cells):
        return None
    words = ("head_pattern", "num_heads", "vocab_size", "num_facts", "embed_dim", "state_dim", "task", "expand")
    return np.array([float(sharing_heads_law(**{name: cell[name] for name in words})) for cell in cells])


def _fitted_curve(cells: Sequence[Row]) -> Array | None:
    """a and b fitted to the group itself; groups of several vocabularies or tasks have no such curve."""
    if len({(cell["vocab_size"], cell["task"]) for cell in cells}) > 1:
        return None
    try:
        fit = fit_collapse(cells, np.random.default_rng(0), bootstrap=0, axes=cell_words(cells))
    except ValueError:
        return None
    return collapsed(dimensions(cells), fit.a, fit.b, "phi")


def _fitted_family(cells: Sequence[Row]) -> Array | None:
    """One lambda fitted to the group itself; groups of several tasks get one as well."""
    measured = np.array([cell["test_accuracy"] for cell in cells])

    def predicted(share: float) -> Array:
        return law_on_cells(_as_law(share), cells)

    def miss(share: float) -> float:
        p = predicted(share)
        return float(np.nanmean((p - measured) ** 2)) if not np.isnan(p).all() else float("nan")

    if np.isnan(miss(0.5)):
        return None
    best = minimize_scalar(miss, bounds=(0.0, 1.0), method="bounded", options={"xatol": 0.01})
    return predicted(float(best.x))


def _as_law(share: float) -> Callable[..., Array]:
    def law(*, num_layers: Any = 1, **words: Any) -> Array:
        if np.any(np.asarray(num_layers) != 1):
            raise ValueError("one layer only")
        return selective_law(**words, share=share)

    return law


def _where_it_fails(law: str, found: Sequence[tuple[float, Row]]) -> str:
    """The worst cell of a law, and how its error goes with N / D."""
    sound = [(error, cell) for error, cell in found if error == error]
    if not sound:
        return f"{law}: applies to no cell of the linear grids."
    worst = max(sound, key=lambda item: abs(item[0]))
    D, N = worst[1]["embed_dim"], worst[1]["state_dim"]
    parts = []
    for says, keep in (
        ("N <= D/8", lambda r: r <= 1 / 8),
        ("D/8 < N <= D/2", lambda r: 1 / 8 < r <= 1 / 2),
        ("N > D/2", lambda r: r > 1 / 2),
    ):
        errors = [error for error, cell in sound if keep(cell["state_dim"] / cell["embed_dim"])]
        if errors:
            parts.append(f"{np.mean(errors):+.3f} for {says}")
    return (
        f"{law}: measured minus predicted is {', '.join(parts)} on average; worst {worst[0]:+.3f} at "
        f"(D, N) = ({D}, {N}), {str(worst[1]['task']).upper()}, V = {worst[1]['vocab_size']}, "
        f"N_f = {worst[1]['num_facts']}."
    )
