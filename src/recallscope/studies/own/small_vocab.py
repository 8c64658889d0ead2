"""Small vocabularies (D ~ V/2), our own experiment: where orthogonal codes would fit, does training find them?

The cells were chosen before any of them was trained. `trained-sharing` had been written down by then, with none of them
in view, and has not been changed since.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.table import accuracies, cells_of, learned, rows_of
from recallscope.studies.claims import Finding, by_distance, own_check
from recallscope.studies.dn_parts import LINEAR
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.paper_runs import Caption, PaperRuns, sheet, source_line
from recallscope.theory.law import DIMENSIONS, Law, find_law
from recallscope.theory.problem import Problem

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL, SMALL_HEADS = "small V, one head", "small V, several heads"
SIZED, SIZED_INSIDE = "small V, as sized", "small V, as sized within the domain"
CELLS = (  # (V, N_f, D, N), from V/D = 1 to 8
    (64, 4, 64, 3), (64, 8, 64, 5), (128, 16, 128, 5), (128, 12, 96, 2), (128, 12, 96, 5),
    (64, 4, 32, 2), (64, 6, 32, 4), (128, 16, 64, 6), (256, 16, 128, 2), (256, 16, 128, 5),
    (128, 12, 48, 3), (128, 16, 48, 8), (256, 16, 96, 3), (128, 12, 32, 4), (256, 16, 64, 3),
    (256, 8, 64, 6), (128, 8, 16, 3), (128, 6, 16, 8), (256, 16, 32, 4), (256, 12, 32, 8),
)  # fmt: skip
HEAD_CELLS = (  # (V, D, N, M, pattern), N_f = 8
    (128, 64, 2, 2, "MHA"), (128, 64, 4, 4, "MQA"), (128, 64, 3, 4, "MKA"), (128, 64, 3, 2, "MVA"),
    (256, 64, 2, 4, "MHA"), (256, 64, 4, 2, "MQA"),
)  # fmt: skip
SIZED_CELLS = (  # what `recallscope size` answered for targets from 0.9 to 0.99, given V, N_f and D
    (64, 4, 24, 4), (64, 4, 48, 3), (64, 8, 40, 3), (128, 8, 40, 6), (128, 8, 100, 6), (128, 16, 80, 6),
    (256, 16, 80, 6), (256, 16, 160, 9), (256, 8, 256, 3), (512, 16, 128, 6), (512, 16, 256, 5), (512, 32, 192, 7),
)  # fmt: skip
SIZED_INSIDE_CELLS = (  # the same for drawn sizes and targets, all inside the domain then; N = 2 has left it since
    (256, 10, 39, 9), (128, 14, 124, 5), (512, 34, 126, 6), (256, 24, 62, 12), (256, 25, 171, 5), (512, 29, 126, 6),
    (64, 7, 18, 3), (64, 5, 56, 5), (128, 15, 59, 5), (64, 5, 39, 2), (512, 28, 68, 13), (128, 4, 23, 3),
)  # fmt: skip
HEAD_SIZES = ("vocab_size", "embed_dim", "state_dim", "num_heads", "head_pattern")


@experiment("small-vocab", "our own: small vocabularies, where codes could be orthogonal, and are not")
def small_vocab(scale: Scale) -> Iterator[Part]:
    """Cells for one head, for several, and those that `size` recommends."""
    quick = {"batch_size": 32, "flat_steps": 200, "decay_steps": 300, "eval_size": 1000}
    train, seeds, cut = {
        "quick": (quick, range(1), "tiny"),
        "small": ({"batch_size": 64, "eval_size": 3000}, range(2), "batch 64, test sets of 3000"),
        "paper": ({}, range(5), ""),
    }[scale]
    lists = CELLS, HEAD_CELLS, SIZED_CELLS, SIZED_INSIDE_CELLS
    chosen, with_heads, sized, inside = (cells[:2] for cells in lists) if scale == "quick" else lists
    several = {"kind": "multihead", "num_heads": 2, "head_pattern": "MHA"}
    once = range(1) if scale == "small" else seeds
    for label, task, model, names, cells, repeats in (
        (SMALL, {}, {}, DIMENSIONS, chosen, seeds),
        (SMALL_HEADS, {"num_facts": 8}, several, HEAD_SIZES, with_heads, seeds),
        (SIZED, {}, {}, DIMENSIONS, sized, once),
        (SIZED_INSIDE, {}, {}, DIMENSIONS, inside, seeds),
    ):
        zipped = dict(zip(names, zip(*cells, strict=True), strict=True))
        yield part(label, LINEAR, task=task, model=model, train=train, axes={"seed": repeats}, zipped=zipped, cut=cut)


def errors(cells: DataFrame) -> NDArray[np.float64]:
    """Measured less predicted, by the law of the model."""
    return accuracies(cells) - law_on_cells(_law_of(cells), cells)


def _law_of(cells: DataFrame) -> Law:
    pattern = cells["head_pattern"].iloc[0] if "head_pattern" in cells else None
    return find_law("trained-sharing").for_pattern(pattern)


def _size(found: NDArray[np.float64]) -> str:
    return f"{np.abs(found).mean():.3f} (max {np.abs(found).max():.3f})"


@small_vocab.findings
def law_at_small_vocabularies(runs: PaperRuns) -> Iterator[Finding]:
    """The law against every list of cells."""
    for label, question in (
        (SMALL, "Small vocabularies, V/D from 1 to 8: does trained-sharing hold?"),
        (SMALL_HEADS, "Heads and small vocabularies: does trained-sharing-heads hold?"),
        (SIZED, "Does training reach what `size` promises?"),
        (SIZED_INSIDE, "And within the stated domain of the law?"),
    ):
        check = own_check(question, "small-vocab")
        rows, missing = runs.rows(label), runs.missing(label)
        kept = learned(rows)
        if rows.empty:
            yield check.untested("no runs yet", missing)
            continue
        cells = cells_of(kept)
        found, beyond = errors(cells), _law_of(cells).extrapolated
        few = cells["state_dim"] == 2
        wide = cells["vocab_size"] <= 2 * cells["embed_dim"]
        outside = np.array([bool(beyond(Problem.from_fields(cell))) for cell in rows_of(cells)])
        groups = {"N = 2": few, "N >= 3": ~few, "V <= 2 D": wide, "V > 2 D": ~wide, "extrapolated": outside}
        by_group = ", ".join(f"{name} {_size(found[here])}" for name, here in groups.items() if here.any())
        worst = cells.iloc[int(np.argmax(np.abs(found)))]
        place = ", ".join(str(worst[name]) for name in DIMENSIONS)
        yield check.answer(
            f"mean absolute error {_size(found)}, bias {found.mean():+.3f}; by group: {by_group}",
            by_distance("largest error of a setting", float(np.abs(found).max()), 0.05, 0.1),
            f"{len(cells)} settings, mean of seeds; measured minus predicted; worst at (V, N_f, D, N) = ({place}); "
            f"{len(rows) - len(kept)} of {len(rows)} runs stayed at chance and are left out",
            missing,
        )


@small_vocab.figure("small-vocab", "ours: the law where codes could be orthogonal")
def small_vocab_figure(runs: PaperRuns) -> Figure:
    """Measured minus predicted accuracy, by list of settings."""
    from recallscope.figures.accuracy_panels import draw_residuals
    from recallscope.figures.style import BLUE, GREEN, PAGE, PURPLE, VERMILION

    names = {
        SMALL: "one head",
        SMALL_HEADS: "several heads",
        SIZED: "sizes from recallscope size",
        SIZED_INSIDE: "the same, inside the law's domain",
    }
    text = source_line(runs, small_vocab.name, list(names))
    measured = {names[label]: cells_of(learned(rows)) for label in names if len(rows := runs.rows(label))}
    off = {name: errors(cells) for name, cells in measured.items()}
    predicted = {name: accuracies(cells) - off[name] for name, cells in measured.items()}
    every = np.concatenate(list(off.values()))
    caption = Caption(
        f"For V/D from 1 to 8, trained-sharing has a mean absolute error of {_size(every)}",
        "each symbol is one setting; at 0 prediction and measurement agree",
        f"{len(every)} settings, mean of the seeds that learned",
        text,
    )
    looks = dict(zip(names.values(), zip((BLUE, VERMILION, GREEN, PURPLE), "os^D", strict=True), strict=True))
    with sheet(0.75 * PAGE, 3.2, caption) as figure:
        draw_residuals(predicted, off, figure.subplots(), looks=looks).legend(ncols=2)
    return figure
