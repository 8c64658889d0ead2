"""Fresh cells, our own experiment: laws without a fitted constant on cells trained after the laws were frozen.

Four memories with a write gate, a delta rule or least squares, trained as in the architecture comparison, in six cells
that no law was compared with before. The laws alone chose the cells, in their transition, before any was trained.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from recallscope.studies.architecture_forms import (
    COMPARISON,
    QUARTER,
    TINY,
    WANTED,
    WITH_LAWS,
    Cell,
    label_of,
    law_errors,
)
from recallscope.studies.claims import Finding, own_check, verdict_of
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.law_table import entry_of
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.law import DIMENSIONS

CELLS: tuple[Cell, ...] = (
    (256, 8, 12, 4), (256, 12, 20, 6), (256, 20, 20, 14), (768, 12, 28, 8), (1024, 12, 40, 6), (512, 20, 48, 6),
)  # fmt: skip


@experiment("fresh-cells", "our own: laws on cells trained after they were frozen", reads=("architectures",))
def fresh_cells(scale: Scale) -> Iterator[Part]:
    """The same cells for every form, trained as in the architecture comparison; one seed at the small scale."""
    cells, train, cut = (TINY, QUARTER, "tiny task") if scale == "quick" else (CELLS, {}, "")
    for form in WITH_LAWS:
        yield part(
            label_of("fresh", form),
            COMPARISON,
            model=form.fields,
            train=train | {"learning_rate": form.rate},
            axes={"seed": range(5 if scale == "paper" else 1)},
            zipped=dict(zip(DIMENSIONS, zip(*cells, strict=True), strict=True)),
            cut=cut,
        )


@fresh_cells.findings
def on_fresh_cells(runs: PaperRuns) -> Iterator[Finding]:
    """How far every law is off here, and in the architecture comparison."""
    missing = runs.missing(*(label_of("fresh", form) for form in WITH_LAWS))
    found = law_errors(runs, "fresh", WITH_LAWS)
    if not found:
        yield own_check("Do laws hold on cells trained after them?").untested("no runs yet", missing)
    before = law_errors(runs, "recall", WITH_LAWS)
    for law, forms in found.items():
        every, wanted = entry_of(np.concatenate(list(forms.values()))), WANTED.get(law, 0.01)
        each = (
            f"{form.label} {entry_of(errors).mean_error:.4f} (comparison "
            + (f"{entry_of(before[law][form]).mean_error:.4f})" if form in before.get(law, {}) else "not run)")
            for form, errors in forms.items()
        )
        yield own_check(f"Does the law {law} hold on cells trained after it?").answer(
            f"off by {every.mean_error:.4f} on average, {every.max_error:.3f} at most ({every.bias:+.3f}); "
            + ", ".join(each),
            verdict_of(every.mean_error, wanted, 3 * wanted),
            f"{every.cells} cells that no law was compared with, L = 4 N_f, measured minus predicted; holds: at most "
            f"{wanted} on average",
            missing,
        )
