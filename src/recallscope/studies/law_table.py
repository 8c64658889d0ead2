"""Every law against measured cells: how far each is off, where, and on how many cells.

`law_table` compares some laws with the grids of the paper's experiments. For the table of docs/LAWS.md and the facts
per state entry every run of a store counts.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame
from scipy.special import ndtri, stdtrit

from recallscope.analysis.accuracy_grid import AccuracyGrid
from recallscope.analysis.collapse import collapsed, fit_collapse
from recallscope.analysis.compare import dimensions, law_on_cells
from recallscope.analysis.seed_noise import interval
from recallscope.analysis.table import COMPARED, accuracies, as_table, cell_fields, cells_of, rows_of
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs
from recallscope.specs import ModelSpec, find_architecture
from recallscope.studies.experiment import Misses, experiments
from recallscope.studies.paper_runs import Caption, PaperRuns, no_runs, sheet
from recallscope.theory.law import LAWS, Law, find_law, law_of, recommended
from recallscope.theory.laws.heads import sharing_heads_law
from recallscope.theory.problem import FIELDS, PLAIN, LawTask, Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN_LAWS = ("unified", "unified-mv", "trained", "trained-sharing")
COUNTED = "trained-sharing, channels counted"
FITTED_CURVE = "Phi(x - b), a and b fitted"
Array = NDArray[np.float64]


@dataclass(frozen=True)
class LawEntry:
    """One law on one group of cells."""

    mean_error: float  # of |measured - predicted|
    max_error: float
    bias: float  # mean of measured - predicted
    cells: int


def entry_of(errors: Array) -> LawEntry:
    """The errors of a law, measured minus predicted; nan where it does not speak about a cell."""
    sound = errors[~np.isnan(errors)]
    size = np.abs(sound)
    return LawEntry(float(size.mean()), float(size.max()), float(sound.mean()), len(sound))


def mae(errors: Array) -> str:
    """Mean absolute error with its 95% interval over cells, and the largest, as text."""
    size = np.abs(errors[~np.isnan(errors)])
    half = stdtrit(len(size) - 1, 0.975) * size.std(ddof=1) / len(size) ** 0.5 if len(size) > 1 else np.nan
    return f"{size.mean():.3f} {interval(max(size.mean() - half, 0), size.mean() + half, 3)}, at most {size.max():.3f}"


@dataclass(frozen=True)
class LawTable:
    """Laws by groups of cells; a law that does not speak about a group has no entry there."""

    groups: tuple[str, ...]
    laws: tuple[str, ...]
    entries: Mapping[tuple[str, str], LawEntry]  # (law, group)
    notes: tuple[str, ...] = ()  # plain sentences, such as where a law fails

    def cells(self, group: str) -> int:
        """Cells of a group, as far as any law speaks about them."""
        return max((entry.cells for (_, name), entry in self.entries.items() if name == group), default=0)

    def best(self, group: str) -> tuple[str, ...]:
        """The law of least mean error, and those equal to it.

        Only laws that speak about the most cells compete, and none with constants fitted to these very cells.
        """
        entries = {
            law: entry
            for law in self.laws
            if law != FITTED_CURVE
            and (entry := self.entries.get((law, group))) is not None
            and entry.cells
            and isfinite(entry.mean_error)
        }
        most = max((entry.cells for entry in entries.values()), default=0)
        rivals = {law: entry.mean_error for law, entry in entries.items() if entry.cells == most}
        least = min(rivals.values(), default=0.0)
        return tuple(law for law, error in rivals.items() if error == least)


def law_table(runs: PaperRuns) -> LawTable:
    """All laws for trained models on all groups of cells that have runs; mean of seeds."""
    groups = {group: rows for one in experiments() for group, rows in one.cells_for_laws(runs).items() if len(rows)}
    entries: dict[tuple[str, str], LawEntry] = {}
    misses: Misses = {}
    for group, rows in groups.items():
        cells = cells_of(rows)
        measured = accuracies(cells)
        predicted: dict[str, Array | None] = {name: law_on_cells(find_law(name), cells) for name in SHOWN_LAWS}
        predicted |= {COUNTED: counted(cells), FITTED_CURVE: _fitted_curve(rows)}
        for law, p in predicted.items():
            if p is None:
                continue
            misses.setdefault(group, {})[law] = list(zip(rows_of(cells), (measured - p).tolist(), strict=True))
            if not np.isnan(p).all():
                entries[law, group] = entry_of(measured - p)
    speaking = {law for law, _ in entries}
    laws = tuple(law for law in (*SHOWN_LAWS, COUNTED, FITTED_CURVE) if law in speaking)
    notes = tuple(note for one in experiments() for found in one.call("law_notes", runs, misses) for note in found)
    return LawTable(tuple(groups), laws, entries, notes)


def counted(cells: DataFrame) -> Array | None:
    """What `sharing_heads_law` says of many-headed cells; other cells have no such law.

    Paper: takes the place of Thm 4.7 (`thm:multi-head-recall`).
    """
    if "head_pattern" not in cells or cells["head_pattern"].isna().any():
        return None
    columns = ["head_pattern", "num_heads", "vocab_size", "num_facts", "embed_dim", "state_dim", "task", "expand"]
    return np.array([float(sharing_heads_law(**cell)) for cell in rows_of(cells[columns])])


def _fitted_curve(rows: DataFrame) -> Array | None:
    """a and b fitted to the group itself; groups of several vocabularies or tasks have no such curve."""
    if len(rows[["vocab_size", "task"]].drop_duplicates()) > 1:
        return None
    grid = AccuracyGrid.from_runs(rows, cell_fields(rows), reduce=COMPARED)
    try:
        fit = fit_collapse(grid, np.random.default_rng(0), bootstrap=0)
    except ValueError:
        return None
    return collapsed(dimensions(grid.cells), fit.a, fit.b, "phi")


def where_it_fails(law: str, cells: Sequence[tuple[Mapping[str, Any], float]]) -> str:
    """How the error of a law (measured minus predicted, nan where it does not apply) goes with N / D, and its worst."""
    sound = [(cell, error) for cell, error in cells if error == error]
    if not sound:
        return f"{law}: applies to no setting of the linear grids."
    means = []
    for name, low, high in (("N <= D/8", 0, 1 / 8), ("D/8 < N <= D/2", 1 / 8, 1 / 2), ("N > D/2", 1 / 2, np.inf)):
        errors = [error for cell, error in sound if low < cell["state_dim"] / cell["embed_dim"] <= high]
        means += [f"{np.mean(errors):+.3f} for {name}"] if errors else []
    worst, error = max(sound, key=lambda item: abs(item[1]))
    return (
        f"{law}: measured minus predicted is {', '.join(means)} on average; worst {error:+.3f} at "
        f"(D, N) = ({worst['embed_dim']}, {worst['state_dim']}), {str(worst['task']).upper()}, "
        f"V = {worst['vocab_size']}, N_f = {worst['num_facts']}."
    )


# Every run of a store

LONGEST_SEARCH = 1000  # steps: runs that are not longer only compare learning rates
Row = Mapping[str, Any]


@cache
def runs_for_laws(store: RunStore) -> list[Row]:
    """Runs on the tasks of the laws. Left out are short ones, and those that diverged or stayed at chance."""
    return [
        row
        for row in find_runs(store)
        if row["task"] in get_args(LawTask)
        and not any(flag in row["warning"] for flag in ("diverged", "at-chance"))
        and sum(row[f"{part}_steps"] for part in ("warmup", "flat", "decay")) > LONGEST_SEARCH
    ]


@cache
def circuits_for_laws(store: RunStore) -> list[Row]:
    """Designed circuits, simulated by results/theory/designed_monte_carlo.py; none if the store has none."""
    path = store.root / "designed" / "monte-carlo.csv"
    if not path.exists():
        return []
    fields = {"task": "task", "V": "vocab_size", "N_f": "num_facts", "D": "embed_dim", "N": "state_dim"}
    with path.open(encoding="utf-8") as file:
        return [
            {name: row[column] if column == "task" else int(row[column]) for column, name in fields.items()}
            | {"test_accuracy": float(row["measured"])}
            | ({"length": int(row["L"])} if row["task"] == "mqar" else {})
            for row in csv.DictReader(file)
        ]


def spec_of(row: Row) -> ModelSpec:
    """The model of a row, as it was; a field that is younger than the record has its default."""
    kind = find_architecture(row["model"])
    known = {name: row.get(name) for name in kind.model_fields if name != "kind"}
    return kind.model_validate({name: value for name, value in known.items() if value is not None})


def _own_law(row: Row) -> Law | None:
    return law_of(spec_of(row), row["task"], row.get("key_tokens"))


def measured_for(law: Law, store: RunStore) -> list[Row]:
    """Stored measurements of the models a law is about.

    Runs whose variant of the architecture has this law for its own; or, if no variant has, those of its architectures
    as they are by default.
    """
    if law.weights == "designed":
        return circuits_for_laws(store)
    rows = [row for row in runs_for_laws(store) if row["task"] in law.tasks]
    own = {row["run"]: found and found.name for row in rows for found in [_own_law(row)]}
    if law.name in own.values():
        return [row for row in rows if own[row["run"]] == law.name]
    return [row for row in rows if row["model"] in law.models and own[row["run"]] == spec_of(row).law is not None]


class Measured(NamedTuple):
    """Stored measurements of the models that a law is about, one training run or circuit each."""

    measured: np.ndarray
    predicted: np.ndarray
    compared: np.ndarray  # whether the law was compared with such sizes, and answers

    @property
    def errors(self) -> np.ndarray:
        """Measured minus predicted."""
        return self.measured - self.predicted


@cache
def against_measurements(law: Law, store: RunStore) -> Measured:
    """A law and everything that is stored about its models."""
    rows = measured_for(law, store)
    predicted = law_on_cells(law, as_table(rows)) if rows else np.array([])
    compared = np.array([not law.extrapolated(_problem(row)).any() for row in rows], bool)
    return Measured(np.array([row["test_accuracy"] for row in rows]), predicted, compared & ~np.isnan(predicted))


def _problem(row: Row) -> Problem:
    return Problem.from_fields({name: row[name] for name in FIELDS if row.get(name) is not None})


# The table of docs/LAWS.md. Its second column is written by hand, in the page.

COLUMNS = "law", "predicts recall of", "idea", "formula, or what is computed", "domain", "mean absolute error"
WRITTEN = re.compile(r"^\| `([^`]+)`[^|]*\|[^|]*\|([^|]*)\|", re.MULTILINE)  # a law and what the page says of it


def laws_table(runs: PaperRuns, page: str) -> Iterator[str]:
    """A row per law, with the fields that the page has for it, or else the first line of its docstring."""
    fields = {name: said.strip() for name, said in WRITTEN.findall(page)}
    yield f"| {' | '.join(COLUMNS)} |"
    yield "|---" * len(COLUMNS) + "|"
    for law in LAWS:
        star = " **recommended**" if law.name in recommended().values() else ""
        said = fields.get(law.name) or (law.function.__doc__ or "").strip().split("\n")[0]
        domain = law.domain.sentence if law.domain else law.holds
        cells = (law.about, said, law.summary, domain, off_by(law, runs.store))
        yield f"| `{law.name}`{star} | {' | '.join(map(in_cell, cells))} |"


def off_by(law: Law, store: RunStore) -> str:
    """Over all stored measurements of sizes that the law was compared with."""
    found = against_measurements(law, store)
    size = np.abs(found.errors[found.compared])
    return f"{size.mean():.3f} (max {size.max():.3f}, n = {len(size)})" if len(size) else "not measured"


def in_cell(text: str) -> str:
    """As a cell of a Markdown table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


# How many facts a state entry holds, by the laws and as trained

V, TARGET = 512, 0.9
FACTS = np.round(np.geomspace(2, 80, 14)).astype(int)
SHAPES = [(4 * N, N) for N in (3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 24)]
PANELS = {  # architecture: its name, and the laws that are drawn
    "linear_mamba": ("linear Mamba", ("trained-sharing",)),
    "retnet": ("RetNet: fades", ("retention",)),
    "mlstm": ("mLSTM: a write gate", ("gated",)),
    "delta_net": ("DeltaNet: replaces", ("delta",)),
    "mesa_net": ("MesaNet: least squares", ("least-squares",)),
    "mamba": ("full Mamba", ("full-mask", "full-bank")),
}


def facts_held(law: str) -> np.ndarray:
    """For every shape the number of facts at which the law gives the target; nan where that lies outside of `FACTS`."""
    D, N = (np.array(sizes)[:, None] for sizes in zip(*SHAPES, strict=True))
    with np.errstate(all="ignore"):
        p = find_law(law)(vocab_size=V, num_facts=FACTS, embed_dim=D, state_dim=N)
        x = ndtri(np.clip(p, 1e-9, 1 - 1e-9))
    held = [np.interp(-ndtri(TARGET), -row, np.log(FACTS), left=np.nan, right=np.nan) for row in x]
    return np.exp(held)


def _per_entry(kind: str, law: str) -> tuple[np.ndarray, np.ndarray]:
    """Effective state entries of every shape, and the facts per entry that the law says it holds."""
    made = find_architecture(kind)
    entries = np.array([made.model_validate({"embed_dim": D, "state_dim": N}).effective_entries for D, N in SHAPES])
    return entries, facts_held(law) / entries


def facts_per_entry(runs: PaperRuns) -> Figure:
    """A panel for each architecture: its law over the size of the state, and every stored run."""
    from recallscope.figures.style import BLUE, PAGE

    rows = [row for row in runs_for_laws(runs.store) if row["task"] in PLAIN]
    if not rows:
        raise no_runs(runs, "architectures")
    lines = {(kind, law): _per_entry(kind, law) for kind, (_, laws) in PANELS.items() for law in laws}
    held = {kind: line[1][len(SHAPES) // 2] for (kind, _), line in lines.items()}
    most = max(held, key=lambda kind: held[kind])
    caption = Caption(
        f"By its law {PANELS[most][0].partition(':')[0]} holds {held[most] / held['linear_mamba']:.1f} times as many "
        f"facts per effective entry as linear Mamba, at N = {SHAPES[len(SHAPES) // 2][1]}",
        f"lines: facts that are recalled with accuracy {TARGET} per effective entry of the state, by the laws, for "
        f"D = 4 N and V = {V}; grey: the laws of the other panels; dots: trained models of any D and N, filled if "
        f"their accuracy is at least {TARGET}. Of the 2 D N entries that a linear Mamba stores it reads D N",
        "one dot per run",
        f"{len(rows)} runs, scale {runs.scale}, from {'/'.join(runs.store.root.parts[-2:])}",
    )
    with sheet(PAGE, 4.8, caption) as figure:
        axes = figure.subplots(2, 3, sharex=True, sharey=True)
        for ax, (kind, (title, laws)) in zip(axes.flat, PANELS.items(), strict=True):
            for (other, _), line in lines.items():
                if other != kind:
                    ax.plot(*line, color="#dddddd", linewidth=0.8, zorder=1)
            for law, style in zip(laws, ("-", "--"), strict=False):
                ax.plot(*lines[kind, law], style, color=BLUE, label=law, zorder=2)
            _dots(ax, [row for row in rows if row["model"] == kind])
            ax.set(title=title, xscale="log", ylim=(0, 0.135))
            ax.set_xticks([64, 256, 1024], labels=["64", "256", "1,024"])
            ax.minorticks_off()
            ax.legend(loc="upper right", fontsize=6)
        for ax in axes[-1]:
            ax.set_xlabel("effective state entries")
        figure.supylabel(f"facts per effective entry, recalled at {TARGET}", fontsize=8)
    return figure


def _dots(ax: Axes, rows: list[Row]) -> None:
    """Runs of one architecture on V = 512: filled if they recall enough."""
    from recallscope.figures.style import VERMILION

    rows = [
        row
        for row in rows
        if (row["task"], row["vocab_size"], row["num_layers"], row["length"]) == ("mqar", V, 1, 4 * row["num_facts"])
        and spec_of(row).own_law == spec_of(row).law
    ]
    for enough, face in ((False, "none"), (True, VERMILION)):
        chosen = [row for row in rows if (row["test_accuracy"] >= TARGET) == enough]
        x = np.array([spec_of(row).effective_entries for row in chosen])
        y = np.array([row["num_facts"] for row in chosen]) / x
        ax.scatter(x, y, s=12, facecolors=face, edgecolors=VERMILION, linewidths=0.6, zorder=3)
