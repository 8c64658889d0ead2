"""Full Mamba part by part, and laws at large sizes (docs/COMPONENTS.md), as tables with every seed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.table import cells_of, rows_of
from recallscope.studies.chapters.page import Chapter, bullets, chapter, sizes_of, table
from recallscope.studies.claims import Finding
from recallscope.studies.component_variants import SEARCH, found_in, references
from recallscope.studies.own.components import TRIED, in_order, number, shown_cells
from recallscope.studies.own.components import components as study
from recallscope.studies.own.large_sizes import KINDS, PAPERS, label_of, large_sizes, law_of
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.law import DIMENSIONS, find_law


def components(runs: PaperRuns) -> Chapter:
    """Full Mamba part by part, and laws at large sizes, from whatever runs there are."""
    blocks = (
        *bullets(map(_said, study.find(runs))),
        "![full Mamba, part by part](figures/components.png)",
        *_parts_table(runs),
        _method(),
        *_large(runs),
    )
    labels = [part.label for one in (study, large_sizes) for part in one.parts(runs.scale)]
    return chapter("What each part of full Mamba brings", blocks, runs, labels)


def _said(one: Finding) -> str:
    if not one.tested:
        return f"**{one.question}** Not measured: {one.evidence}."
    text = one.ours if one.ours.startswith(("yes", "no", "open")) else f"{one.verdict}: {one.ours}"
    return f"**{one.question}** {text[:1].upper()}{text[1:]}. *{one.rule}.*"


def _parts_table(runs: PaperRuns) -> Iterator[str]:
    found = found_in(runs)
    cells = shown_cells(found)
    if not cells:
        return
    yield "Mean of seeds, half of its 95 % interval by these seeds alone, and in brackets every seed."
    laws = ([f"*{law}*", *(f"*{references(cell)[law]:.3f}*" for cell in cells)] for law in references(cells[0]))
    variants = (
        [variant.label, *(number(found.get((cell, variant.label))) for cell in cells)] for variant in in_order(found)
    )
    yield table(["variant", *map(sizes_of, cells)], [*laws, *variants])


def _method() -> str:
    cuts = "; ".join(dict.fromkeys(part.cut for part in study.parts("small") if part.label != SEARCH))
    return (
        "From the linear Mamba (all parts off) each part is switched on alone, from the full one off alone; two Mambas "
        f"of equal steps differ in nothing else but, at most, their learning rate ({cuts}). The rate is the better of "
        f"{' and '.join(f'{rate:g}' for rate in TRIED)} by the loss of a training of a quarter of the steps at the "
        "first cell, on a seed of its own. Decay is made of Delta, so it is switched off alone but not on alone. Laws "
        "are those of expand 2. Three seeds, one layer: what a variant did not learn in these steps it may learn in "
        "more."
    )


def _large(runs: PaperRuns) -> Iterator[str]:
    yield "## Laws beyond the sizes they were made for"
    yield from bullets(map(_said, large_sizes.find(runs)))
    cells = {kind: rows for kind in KINDS if len(rows := cells_of(runs.rows(label_of(kind))))}
    if not cells:
        return
    lines = []
    for kind, rows in cells.items():
        law = law_of(kind)
        own = law_on_cells(find_law(law), rows) if law else [float("nan")] * len(rows)
        papers = np.array([law_on_cells(find_law(name), rows) for name in PAPERS])
        for row, p, others in zip(rows_of(rows), own, papers.T, strict=True):
            sizes = ", ".join(str(row[name]) for name in DIMENSIONS)
            last = [f"{q:.3f}" if kind == "linear_mamba" else "" for q in others]
            lines.append([sizes, KINDS[kind], f"{row['test_accuracy']:.4f}", f"{p:.3f}", *last])
    yield table(["V, N_f, D, N", "memory", "trained", "its law", *PAPERS.values()], lines)
    cuts = ", ".join(dict.fromkeys(part.cut for part in large_sizes.parts(runs.scale)))
    yield (
        f"{cuts[:1].upper()}{cuts[1:]}; rates from the search of the architecture comparison. Redo all of it with "
        "`recallscope reproduce components --scale small --store results/paper`, the same with `large-sizes`, and "
        "`recallscope report`; pictures with `recallscope figures STORE components large-sizes`."
    )
