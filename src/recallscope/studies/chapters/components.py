"""Full Mamba, component by component (docs/COMPONENTS.md), as a table with every seed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recallscope.studies.chapters.page import Chapter, bullets, chapter, sizes_of, table
from recallscope.studies.claims import Finding
from recallscope.studies.component_variants import SEARCH, found_in, references
from recallscope.studies.own.components import TRIED, in_order, number, shown_cells
from recallscope.studies.own.components import components as study
from recallscope.studies.paper_runs import PaperRuns


def components(runs: PaperRuns) -> Chapter:
    """Full Mamba, component by component, from whatever runs there are."""
    blocks = (
        *bullets(_said(study.find(runs))),
        "![accuracy of full Mamba and its variants, in three settings](figures/components.png)",
        *_parts_table(runs),
        _method(),
    )
    return chapter("Full Mamba, component by component", blocks, runs, [part.label for part in study.parts(runs.scale)])


def _said(findings: Iterable[Finding]) -> Iterator[str]:
    """Each with its rule, unless it is that of the finding before."""
    rule = ""
    for one in findings:
        if not one.tested:
            yield f"**{one.question}** Not measured: {one.evidence}."
            continue
        text = one.ours if one.ours.startswith(("yes", "no", "open")) else f"{one.verdict}; {one.ours}"
        rule, before = one.rule, rule
        yield f"**{one.question}** {text[:1].upper()}{text[1:]}." + (f" *Rule: {rule}.*" if rule != before else "")


def _parts_table(runs: PaperRuns) -> Iterator[str]:
    found = found_in(runs)
    cells = shown_cells(found)
    if not cells:
        return
    yield "Mean over seeds ± half of the 95% interval from these seeds alone; in parentheses, every seed."
    laws = ([f"*{law}*", *(f"*{references(cell)[law]:.3f}*" for cell in cells)] for law in references(cells[0]))
    variants = (
        [variant.label, *(number(found.get((cell, variant.label))) for cell in cells)] for variant in in_order(found)
    )
    yield table(["variant", *map(sizes_of, cells)], [*laws, *variants])


def _method() -> str:
    cuts = "; ".join(dict.fromkeys(part.cut for part in study.parts("small") if part.label != SEARCH))
    return (
        "We add one component at a time to the linear Mamba and remove one at a time from the full one. Compared "
        f"models differ in that component and possibly the learning rate ({cuts}). The rate is the one of "
        f"{' and '.join(f'{rate:g}' for rate in TRIED)} with the smaller loss after a quarter of the steps at the "
        "first setting, on a separate seed. Decay is computed from Delta, so it can be removed on its own but not "
        "added on its own. Laws are those for expand 2. Models have one layer, and most variants three seeds; a "
        "variant that did not learn in these steps may learn in more. To repeat the runs: `recallscope reproduce "
        "components --scale small --store results/paper`."
    )
