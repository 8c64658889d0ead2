"""Fresh cells, our own experiment: laws without a fitted constant on cells trained after the laws were frozen.

The linear Mamba on grids that were trained after its law had been committed, with the predictions of that commit.
Four memories with a write gate, a delta rule or least squares, trained as in the architecture comparison, in six cells
that no law was compared with before. The laws alone chose the cells, in their transition, before any was trained.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pandas import read_csv

from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.table import accuracies, cells_of
from recallscope.studies.architecture_variants import (
    COMPARISON,
    QUARTER,
    TINY,
    WITH_LAWS,
    Cell,
    label_of,
    law_errors,
    law_finding,
    mean_error,
)
from recallscope.studies.claims import Finding, by_distance, own_check
from recallscope.studies.dn_parts import VOCABULARIES
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.law_table import mae
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.law import DIMENSIONS, find_law

CELLS: tuple[Cell, ...] = (
    (256, 8, 12, 4), (256, 12, 20, 6), (256, 20, 20, 14), (768, 12, 28, 8), (1024, 12, 40, 6), (512, 20, 48, 6),
)  # fmt: skip


@experiment(
    "fresh-cells",
    "our own: laws on settings trained after they were frozen",
    reads=("architectures", "dn-grid", "large-vocab"),
)
def fresh_cells(scale: Scale) -> Iterator[Part]:
    """The same cells for every variant, trained as in the architecture comparison; one seed at the small scale."""
    cells, train, cut = (TINY, QUARTER, "tiny task") if scale == "quick" else (CELLS, {}, "")
    for variant in WITH_LAWS:
        yield part(
            label_of("fresh", variant),
            COMPARISON,
            model=variant.fields,
            train=train | {"learning_rate": variant.rate},
            axes={"seed": range(5 if scale == "paper" else 1)},
            zipped=dict(zip(DIMENSIONS, zip(*cells, strict=True), strict=True)),
            cut=cut,
        )


@fresh_cells.findings
def on_fresh_cells(runs: PaperRuns) -> Iterator[Finding]:
    """How far every law is off here, and in the architecture comparison."""
    missing = runs.missing(*(label_of("fresh", variant) for variant in WITH_LAWS))
    found = law_errors(runs, "fresh", WITH_LAWS)
    if not found:
        yield own_check("Do laws hold on settings trained after them?").untested("no runs yet", missing)
    before = law_errors(runs, "recall", WITH_LAWS)
    for law, variants in found.items():
        yield law_finding(
            own_check(f"Does the law {law} hold on settings trained after it?"),
            law,
            variants,
            lambda law, one: f"{mean_error(found, law, one)} (comparison {mean_error(before, law, one) or 'not run'})",
            "that no law had been compared with, one seed, L = 4 N_f, measured minus predicted",
            missing,
        )


FROZEN = "frozen/trained-sharing.csv"  # in the store: the law of the linear Mamba as first committed, on its cells
UNSEEN = {  # not of the task and sizes on which the structure of that law was chosen
    "MQAR (i) and (ii)": ("linear MQAR (i)", "linear MQAR (ii)"),
    "AR (i) and (ii)": ("linear AR (i)", "linear AR (ii)"),
    "V to 4096, L to 256": (VOCABULARIES,),
}


@fresh_cells.findings
def before_the_runs(runs: PaperRuns) -> Iterator[Finding]:
    """The law of the linear Mamba as it was committed before any training run of this store."""
    check = own_check("Does trained-sharing hold on grids trained after it was committed?", "laws")
    path = runs.store.root / FROZEN
    if not path.exists():
        yield check.untested("the store has no predictions of the first commit")
        return
    keys = ["task", "vocab_size", "num_facts", "length", "embed_dim", "state_dim"]
    frozen = read_csv(path)
    found, moved = {}, []
    for name, labels in UNSEEN.items():
        if runs.rows(*labels).empty:
            continue
        cells = cells_of(runs.rows(*labels)).merge(frozen, on=keys)
        found[name] = accuracies(cells) - cells["predicted"].to_numpy()
        moved += list(cells["predicted"] - law_on_cells(find_law("trained-sharing"), cells))
    if not found:
        yield check.untested("no runs yet")
        return
    every = np.concatenate(list(found.values()))
    yield check.answer(
        f"mean absolute error {mae(every)}, bias {every.mean():+.3f}; "
        + "; ".join(f"{name} {mae(off)}" for name, off in found.items()),
        by_distance("mean absolute error", float(np.abs(every).mean()), 0.01, 0.03),
        f"{len(every)} settings, mean of seeds, predictions of commit e4ef088, which precedes the first record; "
        f"today's law differs from them by at most {np.abs(moved).max():.4f}. Regime (iii) is left out: the structure "
        "of the law was chosen on earlier runs of MQAR with V = 512 and N_f = 16, which are not in this store",
    )
