"""The reproduction cell by cell and seed by seed (docs/TABLES.md), for those who want more than the report."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from recallscope.analysis.collapse import fit_collapse
from recallscope.analysis.seed_noise import interval
from recallscope.records import RunRecord
from recallscope.studies.chapters.page import Chapter, chapter, table
from recallscope.studies.dn_parts import EXAMPLE, FULL_EXAMPLE, coefficient_ratio, mean_grid
from recallscope.studies.law_table import SHOWN_LAWS
from recallscope.studies.paper.dn_grid import PUBLISHED_EXAMPLE
from recallscope.studies.paper.minimality import ABLATION_LABEL, ablation_of, ablation_results
from recallscope.studies.paper_runs import PaperRuns
from recallscope.theory.law import find_law

TASK = {"vocab_size": 512, "num_facts": 16}  # of the authors' small grid


def cells(runs: PaperRuns) -> Chapter:
    """The authors' small grid, linear and full, and the ablations of Tab. 8."""
    blocks = (*_example(runs), *_full(runs), *_ablations(runs))
    return chapter("The reproduction, cell by cell", blocks, runs, (EXAMPLE, FULL_EXAMPLE, ABLATION_LABEL))


def _cell(record: RunRecord) -> tuple[int, int]:
    """(D, N)."""
    fields: dict[str, Any] = record.fields
    return fields["embed_dim"], fields["state_dim"]


def _example(runs: PaperRuns) -> Iterator[str]:
    """The authors' small linear grid beside every law."""
    records = sorted(runs.records(EXAMPLE), key=_cell)
    if not records:
        return
    yield "## The authors' small grid, linear: V = 512, L = 64, N_f = 16, batch 32, 2000 steps, one seed"
    rows, errors = [], []
    for record in records:
        D, N = _cell(record)
        published, seen = PUBLISHED_EXAMPLE[D, N], record.test_accuracy
        predicted = [float(find_law(name)(**TASK, embed_dim=D, state_dim=N)) for name in SHOWN_LAWS]
        errors.append([abs(seen - p) for p in predicted])
        laws = (f"{p:.3f}" for p in predicted)
        rows.append(
            [D, N, f"{published:.2f}", f"{seen:.4f}", f"{seen - published:+.3f}", *laws, f"{record.seconds:.1f}"]
        )
    seconds = sum(record.seconds for record in records)
    rows.append(["mean", "error", "", "", "", *(f"{error:.4f}" for error in np.mean(errors, 0)), f"{seconds:.0f}"])
    yield table(["D", "N", "published", "measured", "difference", *SHOWN_LAWS, "seconds"], rows)


def _full(runs: PaperRuns) -> Iterator[str]:
    """Full Mamba-1 on the same grid: every seed, the best, the linear model beside it, and the fitted a."""
    full, linear = runs.records(FULL_EXAMPLE), runs.records(EXAMPLE)
    if not full or not linear or runs.scale == "quick":  # the quick scale has another task under this label
        return
    yield "## The same grid, full Mamba-1: batch 32, up to 20,000 steps, stopped at 0.999"
    by_cell: dict[tuple[int, int], list[RunRecord]] = {}
    for record in sorted(full, key=lambda record: record.spec.seed):
        by_cell.setdefault(_cell(record), []).append(record)
    beside = {_cell(record): record.test_accuracy for record in linear}
    law, rows = find_law("full-unified-mv"), []
    for (D, N), members in sorted(by_cell.items()):
        accuracies = [record.test_accuracy for record in members]
        seeds, steps = ", ".join(f"{p:.4f}" for p in accuracies), ", ".join(str(record.steps) for record in members)
        p, seconds = float(law(**TASK, embed_dim=D, state_dim=N)), ", ".join(f"{r.seconds:.0f}" for r in members)
        rows.append(
            [D, N, f"{beside.get((D, N), np.nan):.3f}", seeds, f"{max(accuracies):.4f}", steps, f"{p:.3f}", seconds]
        )
    yield table(["D", "N", "linear", "full, by seed", "best", "steps", "law with a/2, m_V", "seconds"], rows)
    yield f"{len(full)} runs, {sum(record.seconds for record in full) / 60:.0f} minutes of one core."
    rows, both = [], [mean_grid(runs.rows(label)) for label in (FULL_EXAMPLE, EXAMPLE)]
    for name, measured in (("linear", both[1]), ("full, mean of seeds", both[0])):
        fit = fit_collapse(measured, np.random.default_rng(0), bootstrap=1000)
        a, b = f"{fit.a:.2f} {interval(*fit.a_interval)}", f"{fit.b:.2f} {interval(*fit.b_interval)}"
        rows.append([f"{name}, {fit.cells} cells", a, b, f"{fit.mean_error:.3f}"])
    yield table(["runs", "a of Phi(x - b)", "b", "mean error"], rows)
    ratio = coefficient_ratio(both[0], both[1], np.random.default_rng(0), bootstrap=1000)
    yield (
        f"a_full / a_linear on the {ratio.cells} shared cells: {ratio.value:.2f} {interval(*ratio.interval)} with a b "
        f"each, {ratio.shared_b:.2f} {interval(*ratio.shared_b_interval)} with one b for both; means of seeds, seed "
        f"noise of the full model in the intervals. {_half(*ratio.interval, *ratio.shared_b_interval)}"
    )


def _half(low: float, high: float, one_low: float, one_high: float) -> str:
    """Does a/2 hold?"""
    apart, together = low <= 0.5 <= high, one_low <= 0.5 <= one_high
    if apart and together:
        return "A half is inside both intervals: a_full = a_linear / 2 is compatible with these runs."
    if not apart and not together:
        return "A half is outside both intervals: a_full = a_linear / 2 does not hold on this grid."
    return (
        f"A half is inside the interval {'with a b each' if apart else 'with one b for both'} only: "
        f"a_full = a_linear / 2 is no property of the model, it depends on what is done with b."
    )


def _ablations(runs: PaperRuns) -> Iterator[str]:
    """Tab. 8, seed by seed."""
    records = runs.records(ABLATION_LABEL)
    if not records:
        return
    yield "## The ablations: V = 128, L = 64, N_f = 16, D = 64, N = 16, every seed"
    rows = []
    for result in ablation_results(runs.rows(ABLATION_LABEL)):
        ablation, members = (
            result.ablation,
            [record for record in records if ablation_of(record.fields) == result.ablation],
        )
        steps, seconds = (np.mean([getattr(record, name) for record in members]) for name in ("steps", "seconds"))
        seeds = ", ".join(f"{p:.4f}" for p in result.accuracies)
        numbers = (
            f"{ablation.published:.2f}",
            f"{result.mean:.4f}",
            f"{result.spread:.4f}",
            seeds,
            f"{steps:.0f}",
            f"{seconds:.0f}",
        )
        rows.append([ablation.name, ablation.title, *numbers])
    yield table(["ablation", "", "published", "mean", "sd", "seeds", "steps", "seconds a run"], rows)
    yield "1/N_f = 0.0625: without the convolution the model can only guess among the values of the context."
