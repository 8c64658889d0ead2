"""Every law against all that a store holds of its models: errors, the table of docs/LAWS.md, facts per state entry.

`law_table` compares some laws with the grids of the paper's experiments; here every run counts.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import numpy as np
from scipy.special import ndtri

from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.table import as_table
from recallscope.runs.store import RunStore
from recallscope.runs.table import find_runs
from recallscope.specs import ModelSpec, find_architecture
from recallscope.studies.paper_runs import Caption, PaperRuns, no_runs, sheet
from recallscope.theory.law import LAWS, Law, find_law, law_of, recommended
from recallscope.theory.problem import FIELDS, PLAIN, LawTask, Problem

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEWEST_STEPS = 1000  # shorter runs only compare learning rates
Row = Mapping[str, Any]


@cache
def runs_for_laws(store: RunStore) -> list[Row]:
    """Runs on the tasks of the laws. Left out are short ones, and those that diverged or stayed at chance."""
    return [
        row
        for row in find_runs(store)
        if row["task"] in get_args(LawTask)
        and not any(flag in row["warning"] for flag in ("diverged", "at-chance"))
        and sum(row[f"{part}_steps"] for part in ("warmup", "flat", "decay")) >= FEWEST_STEPS
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
