"""Head patterns: which gain from heads, which lose, and by how much.

Paper: Thm 4.7 (`thm:multi-head-recall`), Sec. 5.4 (`subsec:multi-head-experiments`), Fig. 6
(`fig:multi-head-scaling-laws_`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from recallscope.analysis.compare import law_on_cells
from recallscope.analysis.seed_noise import MeanGap, interval, mean_gap, pooled_noise
from recallscope.analysis.table import accuracies, cells_of
from recallscope.presets import Fields, Preset
from recallscope.studies.claims import Check, Finding, by_conditions, by_distance, own_check
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.law_table import counted, mae
from recallscope.studies.paper_runs import Caption, PaperRuns, draw_part, sheet, source_line
from recallscope.theory.law import find_law
from recallscope.theory.reduction import head_bounds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADS = Preset(
    "N-M grids of the head patterns (Fig. 6)",
    {"kind": "mqar", "vocab_size": 512, "num_facts": 16},
    {"kind": "multihead", "embed_dim": 60, "state_dim": 4, "num_heads": 3, "head_pattern": "MVA"},
    {"flat_steps": 1400, "decay_steps": 2500, "clip_norm": 5.0, "eval_every": 1000},
    seeds=3,
)
PATTERNS = ("MQA", "MKA", "MVA", "MHA")  # also the labels of the parts
LETTERS = {"D": "embed_dim", "V": "vocab_size", "N_f": "num_facts"}
SINGLE = "single"
Cells = dict[tuple[str, int, int], NDArray[np.float64]]  # (pattern, N, M) to the accuracies of its seeds
SAME = 0.02  # differences within this count as equal


@experiment("heads", "N-M grids of the four head patterns", claims=("sec-5.4", "fig-6"), presets={"heads": HEADS})
def heads(scale: Scale) -> Iterator[Part]:
    """One grid for each pattern."""
    fields: dict[Scale, Fields] = {
        "quick": {
            "task": {"vocab_size": 128, "num_facts": 8},
            "train": {"batch_size": 32, "flat_steps": 400, "decay_steps": 500, "eval_size": 1000, "eval_every": 500},
            "axes": {"state_dim": [2, 4], "num_heads": [1, 3], "seed": [0]},
            "cut": "tiny task",
        },
        "small": {
            "train": {"batch_size": 32, "eval_size": 1000},
            "axes": {"state_dim": [2, 4, 8], "num_heads": [1, 2, 3, 6], "seed": [0]},
            "cut": "batch 32, test sets of 1000",
        },
        "paper": {"axes": {"state_dim": range(2, 11), "num_heads": range(1, 7), "seed": range(3)}},
    }
    smaller = {"embed_dim": 12} if scale == "quick" else {}
    for pattern in PATTERNS:
        yield part(pattern, HEADS, model={**smaller, "head_pattern": pattern}, **fields[scale])


def head_cells(runs: PaperRuns) -> Cells:
    """All finished seeds by pattern, N and M. With M = 1 the patterns are one: those models are under SINGLE."""
    cells: dict[tuple[str, int, int], list[float]] = {}
    for pattern in PATTERNS:
        for row in runs.rows(pattern).itertuples():
            name = pattern if row.num_heads > 1 else SINGLE
            cells.setdefault((name, row.state_dim, row.num_heads), []).append(row.test_accuracy)
    return {key: np.array(values) for key, values in cells.items()}


def difference(cells: Cells, first: str, second: str) -> MeanGap | None:
    """Mean over cells (N, M > 1) of one pattern less another, or less the single head; None if no cell has both."""
    pairs = [
        (key, other)
        for key in cells
        if key[0] == first and (other := (second, key[1], 1 if second == SINGLE else key[2])) in cells
    ]
    return mean_gap(pairs, cells, pooled_noise(cells.values())) if pairs else None


@heads.findings
def pairs_of_patterns(runs: PaperRuns) -> Iterator[Finding]:
    """Each pattern against the single head, and MQA against MKA."""
    cells, missing = head_cells(runs), runs.missing(*PATTERNS)
    paper = "MVA matches one head, MQA and MKA are weaker, only MHA improves"
    check = Check("fig-6", "How much do the head patterns gain or lose against one head?", paper, "fig-6")
    asked = (("MQA", SINGLE, -1), ("MKA", SINGLE, -1), ("MVA", SINGLE, 0), ("MHA", SINGLE, 1), ("MQA", "MKA", 0))
    gaps = {(first, second): difference(cells, first, second) for first, second, _ in asked}
    found = {pair: gap for pair, gap in gaps.items() if gap is not None}
    if len(found) < len(asked):
        yield check.untested("no runs with several heads yet", missing)
        return
    right = [
        abs(gap.mean) <= SAME if sign == 0 else sign * gap.mean > SAME and gap.interval[0] * gap.interval[1] > 0
        for (*_, sign), gap in zip(asked, found.values(), strict=True)
    ]
    yield check.answer(
        "; ".join(
            f"{first} - {second} {gap.mean:+.3f} {interval(*gap.interval, 3)}" for (first, second), gap in found.items()
        ),
        by_conditions(
            all(right),
            sum(right) >= len(right) - 1,
            f"holds: differences of that sign, above {SAME} with an interval that excludes 0, and equal means within "
            f"{SAME}; approximately: all but one",
        ),
        f"{len(found['MQA', SINGLE].gaps)} settings (N, M > 1), means of seeds; single: mean of all "
        f"one-head models with the same N; 95% interval: {pooled_noise(cells.values())}",
        missing,
    )


@heads.findings
def order_of_patterns(runs: PaperRuns) -> Iterator[Finding]:
    """The order that Thm 4.7 states, cell by cell."""
    check = Check("thm-4.7", "The order of the head patterns", "MQA = MKA <= single = MVA <= MHA", "fig-6")
    cells = {key: float(values.mean()) for key, values in head_cells(runs).items()}
    kept, broken = 0, []
    for N, M in sorted({(N, M) for (_, N, M) in cells if M > 1}):
        here = {pattern: cells[(pattern, N, M)] for pattern in PATTERNS if (pattern, N, M) in cells}
        if len(here) < len(PATTERNS) or (SINGLE, N, 1) not in cells:
            continue
        one = cells[SINGLE, N, 1]
        steps = (one - max(here["MQA"], here["MKA"]), here["MHA"] - min(one, here["MVA"]))
        if min(steps) >= -SAME and abs(here["MVA"] - one) <= 3 * SAME:
            kept += 1
        else:
            broken.append(f"(N, M) = ({N}, {M})")
    if not kept and not broken:
        yield check.untested("no setting has all four patterns yet", runs.missing(*PATTERNS))
        return
    yield check.answer(
        f"in {kept} of {kept + len(broken)} settings" + (f"; not at {', '.join(broken)}" if broken else ""),
        by_conditions(
            not broken,
            kept > len(broken),
            f"holds: in every setting, where <= allows {SAME} for chance = allows {3 * SAME:g}; approximately: in most",
        ),
        "mean of seeds, all four patterns and one head in each setting",
        runs.missing(*PATTERNS),
    )


@heads.findings
def single_heads(runs: PaperRuns) -> Iterator[Finding]:
    """The lemmas behind Thm 4.7 name the single head that each pattern comes down to."""
    for claim, patterns, paper in (
        ("lem-h.3", ("MQA", "MKA"), "p = p_single[D/M, N] (Lem H.3 and H.4)"),
        ("lem-h.5", ("MHA",), "p_single[D, N] <= p <= p_single[D, M N]; the upper end only a bound"),
    ):
        check = Check(claim, f"{' and '.join(patterns)} against the single head of the lemma", paper, "fig-6")
        cells = _many_headed(runs, patterns)
        if not len(cells):
            yield check.untested("no runs with several heads yet")
            continue
        measured = accuracies(cells)
        lower, upper = _as_single(cells, "lower"), _as_single(cells, "upper")
        below, above = (int((gap > SAME).sum()) for gap in (lower - measured, measured - upper))
        evidence = f"{len(cells)} settings with M > 1, mean of seeds; p_single by trained-sharing, no constant fitted"
        if claim == "lem-h.5":
            yield check.answer(
                f"within it in {len(cells) - below - above} of {len(cells)} settings, {below} below, {above} above",
                by_conditions(
                    below + above == 0,
                    2 * (below + above) < len(cells),
                    f"holds: in all settings, up to {SAME}; approximately: in most",
                ),
                evidence,
            )
            continue
        yield check.answer(
            f"mean absolute error {mae(measured - lower)}; as a lower bound it holds in {len(cells) - below} of "
            f"{len(cells)} settings",
            by_distance("mean absolute error", float(np.abs(measured - lower).mean()), SAME, 3 * SAME),
            f"{evidence}. The lemmas count D channels; the published models have 2 D, and with two heads lose nothing",
        )


@heads.findings
def channels_counted(runs: PaperRuns) -> Iterator[Finding]:
    """Our law, which counts the channels that the models have."""
    check = own_check("Does trained-sharing-heads predict heads, with 2 D channels counted?", "fig-6")
    cells = {patterns: _many_headed(runs, patterns) for patterns in (("MQA", "MKA"), ("MVA",), ("MHA",))}
    off = {
        patterns: accuracies(one) - ours
        for patterns, one in cells.items()
        if len(one) and (ours := counted(one)) is not None
    }
    if not off:
        yield check.untested("no runs with several heads yet")
        return
    every = np.concatenate(list(off.values()))
    yield check.answer(
        f"mean absolute error {mae(every)}; "
        + "; ".join(f"{' and '.join(patterns)} {np.abs(errors).mean():.3f}" for patterns, errors in off.items()),
        by_distance("mean absolute error", float(np.abs(every).mean()), SAME, 3 * SAME),
        f"{len(every)} settings with M > 1, mean of seeds, nothing fitted; values of rank min(D, 2 D/M) for MQA and "
        "MKA, single[D, min(M, 2) N] for MHA, wrong facts matched slice by slice"
        + (f". {_when_chosen(cells['MHA',], np.abs(off['MHA',]))}" if ("MHA",) in off else ""),
    )


def _many_headed(runs: PaperRuns, patterns: tuple[str, ...]) -> DataFrame:
    rows = runs.rows(*patterns)
    return cells_of(rows[rows["num_heads"] > 1]) if len(rows) else rows


def _as_single(cells: DataFrame, end: str) -> NDArray[np.float64]:
    """What trained-sharing says of the single head that bounds each cell from below or above."""
    sizes = cells[["head_pattern", "embed_dim", "state_dim", "num_heads"]].itertuples(index=False)
    singles = [getattr(head_bounds(*size), end) for size in sizes]
    as_single = {name: [float(getattr(one, name)) for one in singles] for name in ("embed_dim", "state_dim")}
    return law_on_cells(find_law("trained-sharing"), cells.drop(columns="head_pattern").assign(**as_single))


def _when_chosen(cells: DataFrame, errors: NDArray[np.float64]) -> str:
    """Which cells had been seen when the rule was written down."""
    by_heads = {M: errors[cells["num_heads"] == M] for M in np.unique(cells["num_heads"])}
    said = ", ".join(f"{found.mean():.3f} for M = {M}" for M, found in by_heads.items())
    return (
        "MQA, MKA and MVA: stated after seven MQA settings had been seen, the others trained later. MHA: min(M, 2) N "
        f"was predicted, matching by slices added after all its settings had been seen ({said})"
    )


@heads.law_cells
def many_headed_cells(runs: PaperRuns) -> dict[str, DataFrame]:
    """Runs with more than one head, by pattern."""
    return {name: rows[rows["num_heads"] > 1] for name in PATTERNS if len(rows := runs.rows(name))}


@heads.figure("fig-6", "heads: N-M grids of four patterns")
def heads_figure(runs: PaperRuns) -> Figure:
    """N-M grids of the four patterns.   Paper: Fig. 6 (`fig:multi-head-scaling-laws_`)."""
    from recallscope.figures.accuracy_panels import draw_bar
    from recallscope.figures.style import PAGE

    source = source_line(runs, heads.name, PATTERNS)
    rows = runs.rows(*PATTERNS)
    by_heads = rows.pivot_table("test_accuracy", "num_heads", "head_pattern")
    some = [M for M in (2, by_heads.index.max()) if {1, M} <= {*by_heads.index}]
    gains = by_heads.loc[some] - by_heads.loc[1] if some else by_heads[:0]
    changes = {M: ", ".join(f"{name} {gain:+.2f}" for name, gain in row.items()) for M, row in gains.iterrows()}
    caption = Caption(
        "; ".join(f"with {M} heads instead of one accuracy changes by {text}" for M, text in changes.items()),
        "accuracy over the state size $N$ of one head and the number of heads $M$; best of seeds; changes: mean over N",
        ", ".join(f"${letter}$ = {rows[name].iloc[0]}" for letter, name in LETTERS.items()),
        source,
    )
    with sheet(1.2 * PAGE, 2.5, caption) as figure:
        axes = figure.subplots(1, len(PATTERNS))
        for letter, pattern, ax in zip("abcd", PATTERNS, axes, strict=True):
            draw_part(runs, runs.parts.get(pattern), ax, ("state_dim", "num_heads"), f"({letter}) {pattern}")
        draw_bar(figure, axes)
    return figure
