"""Components, our own experiment: between the linear Mamba and the full one, what does each part bring?

Every part is switched on alone, from the linear Mamba, and off alone, from the full one, by one recipe with equal steps
and the same small search of the learning rate. A reading of the state without a gate cannot use more than N D of its
2 N D numbers, whatever else is on; a gate can, if what is written depends on the key in some other way than the linear
model's. Three cells, chosen before any of them was trained here, ask whether that is what one sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, isnan, nan
from statistics import fmean
from typing import TYPE_CHECKING, Any

from recallscope.analysis.seed_noise import MeanGap
from recallscope.presets import Preset
from recallscope.studies.claims import NOT, Finding, Ruling, Verdict, best_rates, by_conditions, by_distance, own_check
from recallscope.studies.component_variants import (
    FIRST,
    LABELS,
    ND,
    PAIRS,
    REST,
    SEARCH,
    VARIANTS,
    Cell,
    Found,
    Measured,
    Variant,
    found_in,
    gap,
    measuring,
    references,
    side_by_side,
    variant_of,
)
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.markdown import number, sizes_of
from recallscope.studies.markdown import table as markdown_table
from recallscope.studies.paper_runs import Caption, PaperRuns, sheet, source_line

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import Console

CELLS: tuple[Cell, ...] = ((256, 8, 24, 4), (256, 8, 16, 8), (512, 16, 32, 8))
COMPONENTS = Preset(
    "components: full Mamba with parts switched on and off",
    {"kind": "mqar", "vocab_size": 256, "num_facts": 8},
    {"kind": "mamba", "embed_dim": 24, "state_dim": 4},
    {"warmup_steps": 100, "flat_steps": 5900, "decay_steps": 14000, "clip_norm": 0.75, "eval_every": 1000},
    seeds=5,
)
TRIED = (0.01, 0.003)  # learning rates of the search
SEARCH_SEED = 100  # no measurement has it
LESS = {"batch_size": 32, "eval_size": 1600}
SHORT = {"flat_steps": 2300, "decay_steps": 5600}  # 8000 steps
LONGER = {"flat_steps": 3500, "decay_steps": 8400}  # 12000, for the third cell, which learns later
QUARTER = {"warmup_steps": 25, "flat_steps": 575, "decay_steps": 1400, "eval_every": 2000}
AGAIN = FIRST[:1]  # whether the full model trains depends on the seed: the two first cells have more of it
SEEDS, MORE_SEEDS = range(3), range(3, 9)
Planned = tuple[str, Cell, tuple[Variant, ...], dict[str, int], range]
SMALL: tuple[Planned, ...] = (  # in the order of running
    ("first", CELLS[0], FIRST, SHORT, SEEDS),
    ("first", CELLS[1], FIRST, SHORT, SEEDS),
    ("first", CELLS[2], FIRST[:8], LONGER, SEEDS),
    ("further", CELLS[0], (*REST, *PAIRS), SHORT, SEEDS),
    ("further", CELLS[1], REST, SHORT, SEEDS),
    ("more seeds", CELLS[0], AGAIN, SHORT, MORE_SEEDS),
    ("more seeds", CELLS[1], AGAIN, SHORT, MORE_SEEDS),
)


def label_of(what: str, cell: Cell) -> str:
    """How a part is named: which variants, and where."""
    V, N_f, D, N = cell
    return f"{LABELS}{what} at V {V}, N_f {N_f}, D {D}, N {N}"


@experiment(
    "components",
    "our own: what each part of full Mamba brings",
    presets={"components": COMPONENTS},
)
def components(scale: Scale) -> Iterator[Part]:
    """Cell by cell, the most telling variants first; then the search of the learning rates."""
    if scale == "quick":
        tiny = (64, 4, 8, 4)
        train = LESS | {"flat_steps": 100, "decay_steps": 300, "eval_every": 500, "eval_size": 500}
        yield _part(("first", tiny, FIRST[:5], {}, range(2)), train, "tiny task, 500 steps")
        return
    if scale == "small":
        plan = SMALL
    else:
        both = (("first", FIRST), ("further", (*REST, *PAIRS)))
        plan = tuple((what, cell, variants, {}, range(COMPONENTS.seeds)) for cell in CELLS for what, variants in both)
    for turn, planned in enumerate(plan):
        steps = planned[3]
        train, cut = (LESS | steps, f"batch 32, {100 + sum(steps.values())} steps") if steps else ({}, "")
        yield _part(planned, train, cut, turn)
    yield part(
        SEARCH,
        COMPONENTS,
        train=LESS | QUARTER,
        axes={"learning_rate": TRIED, "seed": [SEARCH_SEED]},
        zipped=side_by_side(VARIANTS),
        cut="a quarter of the steps",
        turn=len(plan),
    )


def _part(planned: Planned, train: dict[str, Any], cut: str, turn: int = 0) -> Part:
    what, cell, variants, _, seeds = planned
    V, N_f, D, N = cell
    return part(
        label_of(what, cell),
        COMPONENTS,
        task={"vocab_size": V, "num_facts": N_f},
        model={"embed_dim": D, "state_dim": N},
        train=train,
        axes={"seed": seeds},
        zipped=side_by_side(variants) | {"learning_rate": [variant.rate for variant in variants]},
        cut=cut,
        turn=turn,
    )


# Findings

MARGIN = 0.02  # by which laws are off, and up to which a difference counts as none


@components.findings
def bound(runs: PaperRuns) -> Iterator[Finding]:
    """Ungated models against the N D law."""
    check = own_check("Does no ungated model pass the N D law?", "components")
    missing = runs.missing(*measuring(runs))
    found = {key: one for key, one in found_in(runs).items() if ND in references(one.cell)}
    above = {key: max(one.seeds) - references(one.cell)[ND] for key, one in found.items()}  # by the best seed
    ungated, gated = ([key for key in above if found[key].variant.gated is gate] for gate in (False, True))
    if not ungated or not gated:
        yield check.untested("no ungated and gated runs yet, or no law full-nd", missing)
        return
    best, leader = (max(keys, key=lambda key: above[key]) for keys in (ungated, gated))
    over = {key: found[key].mean - references(key[0])[ND] for key in ungated}
    rule = f"{_close(0).rule}; a gated run must be above by more than {MARGIN}, or the question is open"
    verdict = _close(max(above[best], 0.0)).verdict if above[leader] > MARGIN else "not tested"
    yield check.answer(
        f"best run without a gate {above[best]:+.3f} from the law ({_named(found[best])}), best mean "
        f"{max(over.values()):+.3f}; best run with a gate {above[leader]:+.3f} ({_named(found[leader])})",
        Ruling(verdict, rule),
        _runs(found),
        missing,
    )


def _close(distance: float) -> Ruling:
    return by_distance("distance from the law", distance, MARGIN, 2.5 * MARGIN)


@components.findings
def partners(runs: PaperRuns) -> Iterator[Finding]:
    """Whether SiLU alone, or Delta alone, reaches the N D law."""
    found, missing = found_in(runs), runs.missing(*measuring(runs))
    for label in ("linear + SiLU", "linear + selective"):
        check = own_check(f"Does {label} reach the N D law?", "components")
        off = {
            cell: fmean(one.learned["test_accuracy"]) - references(cell)[ND]
            for (cell, variant), one in found.items()
            if variant == label and len(one.learned) and ND in references(cell)
        }
        if not off:
            yield check.untested("no such run that learned, or no law full-nd", missing)
            continue
        yield check.answer(
            "measured minus the law: " + ", ".join(f"{value:+.3f} {_at(cell)}" for cell, value in off.items()),
            _close(max(map(abs, off.values()))),
            f"mean of the seeds that learned; {_runs(found)}",
            missing,
        )


@components.findings
def luck(runs: PaperRuns) -> Iterator[Finding]:
    """Whether training finds what the gate can do, seed by seed."""
    check = own_check("Does every seed of the full model pass the N D law?", "components")
    found = {key: one for key, one in found_in(runs).items() if one.variant is FIRST[0] and ND in references(one.cell)}
    passed = {cell: [p > references(cell)[ND] + MARGIN for p in one.seeds] for (cell, _), one in found.items()}
    if not passed:
        yield check.untested("no full model yet, or no law full-nd", runs.missing(*measuring(runs)))
        return
    yield check.answer(
        ", ".join(f"{sum(seeds)} of {len(seeds)} {_at(cell)}" for cell, seeds in passed.items()),
        by_conditions(all(map(all, passed.values())), False, f"holds: every seed is above it by more than {MARGIN}"),
        _seeds(found, FIRST[0].label),
        runs.missing(*measuring(runs)),
    )


@components.findings
def differences(runs: PaperRuns) -> Iterator[Finding]:
    """Pairs of variants that differ in one component: whether it helps, may hurt, or does nothing that can be told."""
    found, missing = found_in(runs), runs.missing(*measuring(runs))
    ungated = "linear + SiLU + selective"
    for question, more, less in (
        ("Does the gate alone help the linear model?", "linear + gate", "linear"),
        ("Does the gate help beside SiLU and Delta?", "linear + gate + SiLU + selective", ungated),
        ("Does expand 4 help without the gate?", f"{ungated}, expand 4", ungated),
        ("Does expand 4 help with the gate?", "full, expand 4", "full"),
        ("Does decay help the full model?", "full", "full - decay"),
    ):
        check = own_check(question, "components")
        one = gap(found, more, less)
        if one is None or isnan(one.interval[0]):
            yield check.untested(f"no cell with {more} and {less} yet, or one seed only", missing)
            continue
        ruling = helps(one)
        by_cell = ", ".join(f"{value:+.3f}" for value in one.gaps)
        beside = [
            [
                fmean(found[cell, label].learned["test_accuracy"]) - references(cell)[ND]
                for cell, _ in _both(found, more, less)
            ]
            for label in (less, more)
        ]
        yield check.answer(
            f"{answer_of(one)}: {more} minus {less} {one.mean:+.3f} [{one.interval[0]:+.3f}, {one.interval[1]:+.3f}]"
            + (f"; every seed of {more} is above every seed of {less}" if _apart(found, more, less) else "")
            + (f". {_optimisation(*beside)}" if "expand 4 help without" in question else ""),
            ruling,
            f"setting by setting {by_cell}; {_seeds(found, more, less)}; 95 % interval with the noise of seeds; "
            "runs that only guess left out",
            missing,
        )


def _both(found: Found, more: str, less: str) -> list[tuple[Cell, str]]:
    return [key for key in found if key[1] == more and (key[0], less) in found and ND in references(key[0])]


def _apart(found: Found, more: str, less: str) -> bool:
    return all(min(found[cell, more].seeds) > max(found[cell, less].seeds) for cell, _ in _both(found, more, less))


def _optimisation(without: list[float], with_more: list[float]) -> str:
    """Where both end, against what no ungated model should pass."""
    return (
        "It mostly helps optimisation: minus the N D law the runs with expand 2 end at "
        f"{', '.join(f'{value:+.3f}' for value in without)}, with expand 4 at "
        f"{', '.join(f'{value:+.3f}' for value in with_more)}"
    )


def helps(one: MeanGap) -> Ruling:
    """By the interval: the verdict is on "yes, it helps"; not tested if the interval does not tell."""
    low, high = one.interval
    verdict: Verdict = "holds" if low > 0 and one.mean > MARGIN else NOT if high <= MARGIN else "not tested"
    rule = f"helps: mean above {MARGIN} and 95 % interval above 0; does not: interval up to {MARGIN}; open between"
    return Ruling(verdict, rule)


def answer_of(one: MeanGap) -> str:
    """The same in words, and whether it may hurt."""
    low, high = one.interval
    hurts = "it hurts" if high < 0 else "it may hurt" if one.mean < -MARGIN and low < -MARGIN else ""
    said = {"holds": "yes", NOT: "no", "not tested": "open"}[helps(one).verdict]
    return f"{said}, {hurts}" if hurts and said == "no" else said


@components.findings
def rates(runs: PaperRuns) -> Iterator[Finding]:
    """Whether every variant is trained with the best rate of its search."""
    losses: dict[str, dict[float, float]] = {}
    for record, loss in runs.losses(SEARCH):
        losses.setdefault(variant_of(record.fields).label, {})[record.spec.train.learning_rate] = loss
    yield best_rates(
        own_check("Is every variant trained at the best learning rate of its search?"),
        losses,
        {variant.label: variant.rate for variant in VARIANTS},
        len(TRIED),
        f"rates {', '.join(f'{rate:g}' for rate in TRIED)}, 2000 steps in the first setting with a separate seed",
        runs.missing(SEARCH),
    )


def _at(cell: Cell) -> str:
    return f"at (V, N_f, D, N) = ({', '.join(map(str, cell))})"


def _named(one: Measured) -> str:
    return f"{one.variant.label} {_at(one.cell)}, seeds {', '.join(f'{p:.3f}' for p in one.seeds)}"


def _runs(found: Found) -> str:
    untrained = [one.variant.label for one in found.values() if one.learned.empty]
    runs = sum(len(one.rows) for one in found.values())
    return f"{runs} runs, {len({cell for cell, _ in found})} cells; no seed learned: {', '.join(untrained) or 'none'}"


def _seeds(found: Found, *labels: str) -> str:
    return "; ".join(
        f"{label} {', '.join(f'{p:.4f}' for p in one.seeds)}" for (_, label), one in found.items() if label in labels
    )


# Table and figure


def shown_cells(found: Found) -> list[Cell]:
    """The cells that have runs, in their order."""
    return sorted({cell for cell, _ in found}, key=lambda cell: (*CELLS, cell).index(cell))


@components.tables
def table(runs: PaperRuns, console: Console) -> None:
    """Every variant: mean, half of its interval, and all seeds, cell by cell."""
    from rich.table import Table

    found = found_in(runs)
    cells = shown_cells(found)
    shown = Table(
        "variant", *(f"V {V}, N_f {N_f}, D {D}, N {N}" for V, N_f, D, N in cells), box=None, header_style="dim"
    )
    for name in references(cells[0]) if cells else ():
        shown.add_row(name, *(f"{references(cell)[name]:.3f}" for cell in cells))
    for variant in in_order(found):
        shown.add_row(variant.label, *(_number(found.get((cell, variant.label))) for cell in cells))
    console.print(shown, highlight=False)


def _number(one: Measured | None) -> str:
    return number(one.seeds, one.interval) if one else "-"


def in_order(found: Found) -> list[Variant]:
    """Those that were measured: from the linear model up, then from the full one down."""
    there = {label for _, label in found}
    return sorted(
        (variant for variant in VARIANTS if variant.label in there), key=lambda variant: (variant.full, variant.changes)
    )


GROUPS: dict[str, Callable[[Variant], bool]] = {
    "one component added to the linear model": lambda variant: not variant.full and variant.changes < 2,
    "several added": lambda variant: not variant.full and variant.changes > 1,
    "the full model, and what is taken away": lambda variant: variant.full,
}


@components.figure("components", "ours: full Mamba, component by component")
def components_figure(runs: PaperRuns) -> Figure:
    """A panel per setting, a row per variant: every seed, and what three laws say."""
    from recallscope.figures.style import BLUE, PAGE, VERMILION
    from recallscope.figures.variants import Look, draw_seeds

    text = source_line(runs, components.name, measuring(runs))
    found = found_in(runs)
    variants, cells = in_order(found), shown_cells(found)
    looks = {
        variant.label: Look(VERMILION if variant.gated else BLUE, "s" if variant.gated else "o") for variant in variants
    }
    rows: dict[str, str] = {}
    for heading, belongs in GROUPS.items():
        rows |= {heading: ""} | {variant.label: variant.label for variant in variants if belongs(variant)}
    above = {  # of means of seeds, over the N D law
        gated: max(
            (one.mean - references(one.cell).get(ND, inf) for one in found.values() if one.variant.gated is gated),
            default=nan,
        )
        for gated in (False, True)
    }
    caption = Caption(
        f"Only models with a gate pass the N D law: their means of seeds by up to {above[True]:+.2f}, those without a "
        f"gate by {above[False]:+.2f} at most; and not every gated seed does",
        "every symbol is a seed, | their mean: squares with a gate, circles without; vertical lines: laws at expand 2",
        f"{sum(len(one.rows) for one in found.values())} runs, three seeds each, nine of full in two settings",
        text,
    )
    with sheet(PAGE, 0.145 * len(rows) + 1.0, caption) as figure:
        axes = figure.subplots(1, len(cells), squeeze=False, sharey=True)[0]
        for ax, cell in zip(axes, cells, strict=True):
            V, N_f, D, N = cell
            seeds = {row: found[cell, row].seeds if (cell, row) in found else () for row in rows}
            draw_seeds(seeds, ax, looks=looks, guess=1 / N_f, name="$1/N_f$", laws=references(cell))
            ax.set_title(f"$V={V}$, $N_f={N_f}$\n$D={D}$, $N={N}$", fontsize=8, pad=14)
        for label in axes[0].get_yticklabels():
            label.set(fontweight="bold" if label.get_text() in GROUPS else "normal", fontsize=6.5)
        handles, names = axes[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside upper center", ncols=len(names))
    return figure


def components_table(runs: PaperRuns, page: str = "") -> list[str]:
    """Every variant in every cell that has runs, below the laws."""
    found = found_in(runs)
    cells = shown_cells(found)
    if not cells:
        return []
    laws = ([f"*{law}*", *(f"*{references(cell)[law]:.3f}*" for cell in cells)] for law in references(cells[0]))
    variants = (
        [variant.label, *(_number(found.get((cell, variant.label))) for cell in cells)] for variant in in_order(found)
    )
    return markdown_table(["variant", *map(sizes_of, cells)], [*laws, *variants])
