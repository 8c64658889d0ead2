"""Architectures, our own experiment: which recurrence recalls the most per state entry, can overwrite, and trains?

Every architecture in its minimal variant (one layer, one head, windows of two tokens, no norm, no output gate) at the
same D and N on three tasks, and with every key written twice; and published layers, two of them stacked. All have the
same recipe, and the same search of the learning rate on a seed of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recallscope.studies.architecture_variants import (
    AGES,
    CELLS,
    COMPARISON,
    MINIMAL,
    NEW,
    PUBLISHED,
    QUARTER,
    QUESTIONS,
    RATES,
    REPEATED,
    RULES,
    VARIANTS,
    WANTED,
    Cell,
    Measured,
    Size,
    Variant,
    age_gap,
    ages,
    compared_parts,
    flagged,
    label_of,
    law_errors,
    linear_at,
    losses,
    measured,
    named,
    ranking,
)
from recallscope.studies.claims import Finding, Ruling, best_rates, by_conditions, by_distance, own_check
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.law_table import entry_of
from recallscope.studies.markdown import number, sizes_of, table
from recallscope.studies.paper_runs import Caption, PaperRuns, no_runs, sheet, source_line
from recallscope.studies.stored_runs import facts_per_entry
from recallscope.theory.law import DIMENSIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from recallscope.figures.variants import Look

TINY = {"vocab_size": 64, "num_facts": 4}
QUICK = (MINIMAL[0], MINIMAL[6])
AGE_SEQUENCES = 4000  # behind the recall by age


@experiment("architectures", "our own: linear RNNs at equal state, on a CPU", presets={"architectures": COMPARISON},
            reads=("new-architectures",))  # fmt: skip
def architectures(scale: Scale) -> Iterator[Part]:
    """For every variant but the new ones: the search of its learning rate, the cells, and keys written twice."""
    if scale == "quick":
        yield from _tiny()
        return
    for variant in (one for one in VARIANTS if one not in NEW):
        yield from compared_parts(variant, {"small": range(2), "paper": range(5)}[scale])


def _tiny() -> Iterator[Part]:
    """The same questions, asked of two variants in seconds."""
    for variant in QUICK:
        model, train = {**variant.fields, "embed_dim": 16, "state_dim": 4}, QUARTER | {"eval_size": 500}
        for what, task in (("recall", TINY), ("repeated", REPEATED | TINY), ("by age", TINY)):
            yield part(label_of(what, variant), COMPARISON, task=task, model=model, train=train, axes={"seed": [0]},
                       keep_weights=what == "by age", cut="tiny task")  # fmt: skip


@architectures.after_runs
def measure_ages(runs: PaperRuns) -> None:
    """Recall by the place of the fact, of every model that was not asked before."""
    runs.measure_inside(AGES, [label_of("by age", variant) for variant in MINIMAL], recall_by_place)


def recall_by_place(weights: Path) -> dict[str, Any]:
    """Recall of a trained model by the fact's place in the context, oldest first."""
    import torch

    from recallscope.interp.decoders import measure_behaviour
    from recallscope.tasks.drawing import sample_batch
    from recallscope.train.weights import read_weights

    model, task = read_weights(weights)
    batch = sample_batch(task, AGE_SEQUENCES, torch.Generator().manual_seed(0))
    return {"recall_by_place": measure_behaviour(model, batch).recall_by_place, "sequences": AGE_SEQUENCES}


# Findings

FLAT = 0.05  # newest quarter less oldest, at which recall no longer counts as the same for all facts


@architectures.findings
def rates(runs: PaperRuns) -> Iterator[Finding]:
    """Whether every variant is trained with the best rate of its search."""
    yield best_rates(
        own_check("Is every variant trained at the best learning rate of its search?"),
        {variant.label: losses(runs, variant) for variant in VARIANTS},
        {variant.label: variant.rate for variant in VARIANTS},
        len(RATES),
        f"each of {len(RATES)} rates with a separate seed: 500 steps, for layers as published all steps",
        runs.missing(*(label_of("rates", variant) for variant in VARIANTS)),
    )


@architectures.findings
def per_size(runs: PaperRuns) -> Iterator[Finding]:
    """Who recalls most at equal state, and at equal parameters."""
    labels = [label_of("recall", variant) for variant in MINIMAL]
    sizes: tuple[tuple[Size, str, str], ...] = (("state_entries", "state entry", "architectures"),
                                                ("parameters", "parameter", "architectures-parameters"))  # fmt: skip
    for size, name, figure in sizes:
        check = own_check(f"Which minimal variant recalls most per {name}?", figure)
        order = ranking(runs, size)
        if not order:
            yield check.untested("no cell that all measured variants have yet", runs.missing(*labels))
            continue
        yield check.answer(
            f"recall above that of the best linear Mamba with as many: {named(order, sign='+')}",
            Ruling(
                "holds approximately" if runs.missing(*labels) else "holds", "a ranking, complete if no run is missing"
            ),
            f"{len(order)} variants, mean over the cells that all have, mean of seeds; the linear Mamba by its law. Do "
            "not read an order into differences smaller than the intervals",
            runs.missing(*labels),
        )


@architectures.findings
def own_laws(runs: PaperRuns) -> Iterator[Finding]:
    """How far every variant is from the law of its memory."""
    labels = [label_of("recall", variant) for variant in MINIMAL]
    found = law_errors(runs)
    if not found:
        why = "no cell of a variant that has a law yet"
        yield own_check("Do minimal variants recall as their laws say?").untested(why, runs.missing(*labels))
    for law, variants in found.items():
        by_variant = {variant.label: entry_of(errors) for variant, errors in variants.items()}
        together = entry_of(np.concatenate(list(variants.values())))
        wanted = WANTED.get(law, 0.01)
        yield own_check(f"Do minimal variants recall as the law {law} says?").answer(
            f"off by {together.mean_error:.4f} on average, {together.max_error:.3f} at most ({together.bias:+.3f}); "
            + ", ".join(f"{label} {one.mean_error:.4f} ({one.max_error:.3f})" for label, one in by_variant.items()),
            by_distance("mean absolute error", together.mean_error, wanted, 3 * wanted),
            f"{together.cells} cells, L = 4 N_f and V >= 256, mean of seeds, measured minus predicted",
            runs.missing(*labels),
        )


@architectures.findings
def overwriting(runs: PaperRuns) -> Iterator[Finding]:
    """Who answers with the last value of a key: the variants of every rule, against what is expected of them."""
    labels = [label_of("repeated", variant) for variant in MINIMAL]
    found = {variant.label: one for variant in MINIMAL for one in measured(runs, "repeated", variant).values()}
    for question, rules, expected, limits in (
        ("Does the delta rule overwrite?", ("replaces",), 1.0, (0.01, 0.05)),
        ("Does a state that only adds guess?", ("adds",), 0.5, (0.03, 0.1)),
        ("Do fading, least squares and attention overwrite?", ("fades", "solves", "keeps all"), 1.0, (0.05, 0.1)),
    ):
        check = own_check(question, "architectures-repeated")
        mine = {label: one for label, one in found.items() if one.variant.rule in rules}
        if not mine:
            yield check.untested("no such run yet", runs.missing(*labels))
            continue
        means = {label: one.mean for label, one in mine.items()}
        rulings = {
            by_distance(f"distance of each from {expected:g}", abs(p - expected), *limits) for p in means.values()
        }
        ruling = rulings.pop() if len(rulings) == 1 else Ruling("holds approximately", rulings.pop().rule + "; mixed")
        spread = "; ".join(f"{label} {', '.join(f'{p:.4f}' for p in one.seeds)}" for label, one in mine.items())
        yield check.answer(
            named(means),
            ruling,
            f"every key written twice; mean of seeds: {spread}" + (f". {NO_ORDER}" if "keeps all" in rules else ""),
            runs.missing(*labels),
        )


NO_ORDER = (
    "Attention has no positional encoding here, and MesaNet no forget gate, which is not its published setting: "
    "neither can know which value is the newer"
)


@architectures.findings
def by_age(runs: PaperRuns) -> Iterator[Finding]:
    """Recall of new facts and of old ones."""
    rule = {variant.label: variant.rule for variant in MINIMAL}
    found = ages(runs)
    for question, rules, flat in (
        ("Do states that only add recall old facts as well as new ones?", ("adds",), True),
        ("Do states that replace recall new facts better?", ("replaces",), False),
    ):
        check = own_check(question, "architectures-age")
        mine = {label: age_gap(places) for label, places in found.items() if rule[label] in rules}
        if not mine:
            yield check.untested("no weights of such a model, or nothing measured from them yet")
            continue
        right = [abs(gap) <= FLAT if flat else gap > FLAT for gap in mine.values()]
        others = {label: age_gap(places) for label, places in found.items() if rule[label] not in ("adds", "replaces")}
        yield check.answer(
            f"newest quarter of the facts less oldest: {named(mine, sign='+')}; others: {named(others, sign='+')}",
            by_conditions(
                all(right), any(right), f"holds: all {'within' if flat else 'above'} {FLAT}; approximately: some"
            ),
            f"one model each, {AGE_SEQUENCES} sequences",
        )


@architectures.findings
def published(runs: PaperRuns) -> Iterator[Finding]:
    """Two published layers on the first cell."""
    labels = [label_of("recall", variant) for variant in PUBLISHED]
    check = own_check("Do two published layers train by the same recipe?", "architectures")
    found = {variant: one for variant in PUBLISHED for one in measured(runs, "recall", variant).values()}
    if not found:
        yield check.untested("no such run yet", runs.missing(*labels))
        return
    guess = 1 / CELLS[0][1]
    failed = [variant.label for variant, one in found.items() if one.mean <= 2 * guess]
    text = ", ".join(f"{variant.label} {one.mean:.3f} at rate {variant.rate:g}" for variant, one in found.items())
    yield check.answer(
        f"{text}; did not train: {', '.join(failed) or 'none'}",
        by_conditions(
            not failed,
            len(failed) < len(found),
            f"holds: all above 2/N_f = {2 * guess}, mean of seeds; approximately: some",
        ),
        "V = 512, N_f = 16, D = 32, N = 8, 3000 steps",
        runs.missing(*labels),
    )


@architectures.findings
def faults(runs: PaperRuns) -> Iterator[Finding]:
    """Runs with a flag."""
    check = own_check("Which measurements should not be taken at face value?")
    labels = [label_of(what, variant) for variant in VARIANTS for what in QUESTIONS]
    done = {record.run for label in labels for record in runs.records(label)}
    if not done:
        yield check.untested("no runs yet", runs.missing(*labels))
        return
    found = flagged(runs)
    yield check.answer(
        "; ".join(found.values()) or "none has a flag",
        Ruling("holds approximately" if found else "holds", "holds: no run has a warning"),
        f"{len(done)} runs; diverged, at chance or still improving, as `recallscope store list` marks them",
    )


# Figures


def _looks() -> dict[str, Look]:
    """A colour and a marker for every rule; models with two layers as published are hollow."""
    from recallscope.figures.style import BLACK, BLUE, GREEN, ORANGE, VERMILION
    from recallscope.figures.variants import Look

    rules = dict(zip(RULES, zip((BLUE, ORANGE, VERMILION, GREEN, BLACK), "os^DP", strict=True), strict=True))
    return {variant.label: Look(*rules[variant.rule], hollow=variant.published) for variant in VARIANTS}


@architectures.figure(
    "architectures", "ours: accuracy beside the best linear Mamba of equal state", size="state_entries"
)
@architectures.figure("architectures-parameters", "ours: the same at equal parameters", size="parameters")
def size_figure(runs: PaperRuns, size: Size) -> Figure:
    """A panel per setting, a row per architecture: beside the best linear Mamba of its size, by its law."""
    from matplotlib.lines import Line2D

    from recallscope.figures.style import BLACK, PAGE
    from recallscope.figures.variants import Dot, draw_beside

    text = source_line(runs, architectures.name, [label_of("recall", variant) for variant in VARIANTS])
    cells: dict[Cell, dict[str, Dot]] = {}
    for variant in VARIANTS:
        for cell, one in measured(runs, "recall", variant).items():
            held = getattr(one, size)
            beside = linear_at(one.task, size, float(held)) if held else float("nan")
            cells.setdefault(cell, {})[variant.label] = Dot(variant.label, held, one.seeds, one.interval, beside)
    order = ranking(runs, size)
    if not order:
        raise no_runs(runs, architectures.name, f"runs without {size}")
    every, names = _looks(), [label for label, _ in order]
    bare = {label: every[label] for label in dict.fromkeys((*names, *(variant.label for variant in MINIMAL)))}
    bare = {label: look for label, look in bare.items() if any(label in dots for dots in cells.values())}
    published = {f.label: every[f.label] for f in PUBLISHED if any(f.label in dots for dots in cells.values())}
    what = "effective state entry" if size == "state_entries" else "parameter"
    gained = ", ".join(f"{label} {gain:+.3f}" for label, gain in order[:3])
    caption = Caption(
        f"Per {what} {names[0]} recalls most; gain over the best linear Mamba of the same size, mean over "
        f"settings: {gained}",
        "rows: architectures, best mean gain first; symbol: mean accuracy with 95% interval; bar: best linear Mamba "
        f"with as many {size.replace('_', ' ')}, by its law; numbers: {size.replace('_', ' ')}; hollow, below: two "
        "layers, each as published, every seed",
        "two seeds per setting; intervals from the seed noise of an architecture over all settings. Rows that differ "
        "by less than their intervals have no order",
        text,
    )
    columns, shown = 3, sorted(cells, key=_place)
    rows = -(-len(shown) // columns)
    heights = [0.155 * len(bare) + 0.45] * rows + [0.155 * max(len(published), 3) + 0.5]
    with sheet(PAGE, sum(heights), caption) as figure:
        axes = figure.subplots(rows + 1, columns, squeeze=False, gridspec_kw={"height_ratios": heights})
        for ax, cell in zip(axes[:rows].flat, shown, strict=False):
            draw_beside(cells[cell], ax, looks=bare)
            V, N_f, D, N = cell
            ax.set_title(f"$V={V}$, $N_f={N_f}$, $D={D}$, $N={N}$", fontsize=8)
        for ax in [*axes[:rows, 1:].flat]:
            ax.set_yticklabels([])
        for ax in [*axes[:rows].flat[len(shown) :], axes[rows, -1]]:
            ax.set_visible(False)
        below = axes[rows, 0]
        below.set_visible(bool(published))
        if published:
            draw_beside(cells[shown[0]], below, looks=published).set_xlabel("accuracy")
        handles = [
            Line2D([], [], ls="", marker=look.marker, color=look.colour, label=rule)
            for rule, look in {variant.rule: every[variant.label] for variant in MINIMAL}.items()
        ]
        handles.append(Line2D([], [], ls="", marker="|", color=BLACK, ms=8, label="best linear Mamba of that size"))
        axes[rows, 1].set_axis_off()
        axes[rows, 1].legend(handles=handles, loc="upper left", title="the state as a fact comes in")
    return figure


def _sizes(fields: dict[str, Any]) -> str:
    letters = zip(("V", "N_f", "D", "N"), DIMENSIONS, strict=True)
    return ", ".join(f"${letter}={fields[name]}$" for letter, name in letters)


def _place(cell: Cell) -> int:
    return CELLS.index(cell) if cell in CELLS else len(CELLS)


@architectures.figure("architectures-age", "ours: recall by the age of the fact")
def age_figure(runs: PaperRuns) -> Figure:
    """A panel per rule, a line per variant."""
    from recallscope.figures.accuracy_panels import draw_missing
    from recallscope.figures.style import PAGE
    from recallscope.figures.variants import draw_ages

    text = source_line(runs, architectures.name, [label_of("by age", variant) for variant in MINIMAL])
    found = ages(runs)
    if not found:
        raise no_runs(runs, architectures.name, "no recall by age")
    looks = _looks()
    here = {variant.rule for variant in MINIMAL if label_of("by age", variant) in runs.parts}
    every = ("adds",), ("fades",), ("replaces",), ("solves", "keeps all")
    groups = [rules for rules in every if here.intersection(rules)]
    lines = [{f.label: found[f.label] for f in MINIMAL if f.rule in rules and f.label in found} for rules in groups]
    fields = next(record.fields for variant in MINIMAL for record in runs.records(label_of("by age", variant)))
    gaps = {label: age_gap(places) for label, places in found.items()}
    forget = [label for label, gap in gaps.items() if gap > FLAT]
    caption = Caption(
        f"{', '.join(forget)} recall new facts better than old ones, by {min(gaps[one] for one in forget):.2f} to "
        f"{max(gaps[one] for one in forget):.2f} from the oldest to the newest quarter; the others do not"
        if forget
        else "No architecture recalls new facts better than old ones",
        "each line is one trained model; panels: what happens to the state as a fact comes in",
        f"{_sizes(fields)}; one model each, {AGE_SEQUENCES:,} sequences, so that no seed noise is in the lines",
        text,
    )
    with sheet(PAGE, 2.9, caption) as figure:
        panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
        for ax, rules, shown in zip(panels, groups, lines, strict=True):
            title = (
                f"the state {', '.join(rules)}" if rules[0] in ("adds", "fades", "replaces") else "solves; keeps all"
            )
            if shown:
                draw_ages(shown, ax, looks=looks, title=title)
            else:
                draw_missing(ax, title=title, box_aspect=None)
        figure.axes[0].set_ylabel("accuracy")
    return figure


@architectures.figure("architectures-repeated", "ours: who can overwrite")
def repeated_figure(runs: PaperRuns) -> Figure:
    """Accuracy with every key written twice: all seeds of every variant."""
    from recallscope.figures.style import PAGE
    from recallscope.figures.variants import draw_seeds

    text = source_line(runs, architectures.name, [label_of("repeated", variant) for variant in MINIMAL])
    found = {
        f: one
        for f in sorted(MINIMAL, key=lambda variant: RULES.index(variant.rule))
        for one in measured(runs, "repeated", f).values()
    }
    fields = next(record.fields for variant in MINIMAL for record in runs.records(label_of("repeated", variant)))
    can = [variant.label for variant, one in found.items() if one.mean >= 0.9]
    caption = Caption(
        f"{len(can)} of {len(found)} architectures answer with the newer of two values: those that fade or replace",
        "every key is written twice and asked for once; dashed: a guess between both values. Attention has no "
        "positions here, and MesaNet no forget gate",
        f"{_sizes(fields)}; every symbol is a seed",
        text,
    )
    with sheet(0.75 * PAGE, 0.2 * len(found) + 0.6, caption) as figure:
        seeds = {variant.label: one.seeds for variant, one in found.items()}
        draw_seeds(seeds, figure.subplots(), looks=_looks(), guess=0.5, name="guess: 1/2")
    return figure


architectures.figure("facts-per-entry", "ours: facts per state entry, by the laws and as trained")(facts_per_entry)


# Tables


def recall_table(runs: PaperRuns, page: str = "") -> list[str]:
    """Every minimal variant in every cell."""
    found = {variant: measured(runs, "recall", variant) for variant in MINIMAL}
    rows = ([variant.label, *(_number(cells.get(cell)) for cell in CELLS)] for variant, cells in found.items())
    return table(["variant", *map(sizes_of, CELLS)], rows) if any(found.values()) else []


def _number(one: Measured | None) -> str:
    return number(one.seeds, one.interval, 4) if one else "-"


def variants_table(runs: PaperRuns, page: str = "") -> list[str]:
    """What every minimal variant is, the bits that a state entry holds on average, and what it takes in one setting."""
    rows = []
    for variant in MINIMAL:
        cells = measured(runs, "recall", variant)
        first, again = cells.get(CELLS[0]), next(iter(measured(runs, "repeated", variant).values()), None)
        bits = float(np.mean([one.bits_per_entry for one in cells.values()])) if cells else float("nan")
        what = variant.label, variant.update, variant.rule, "-" if isnan(bits) else f"{bits:.3f}"
        rows.append([*what, *_size(first), _number(again), _rate(runs, variant), _seconds(first)])
    columns = "variant", "update of the state", "rule", "bits per state entry", "effective state", "parameters"
    return table([*columns, "keys written twice", "learning rate", "seconds"], rows)


def published_table(runs: PaperRuns, page: str = "") -> list[str]:
    """Two published layers, in the first cell."""
    found = {variant: measured(runs, "recall", variant).get(CELLS[0]) for variant in PUBLISHED}
    rows = ([f.label, _number(one), *_size(one), _rate(runs, f), _seconds(one)] for f, one in found.items())
    return table(["variant", "recall", "effective state", "parameters", "learning rate", "seconds"], rows)


def _size(one: Measured | None) -> tuple[str, str]:
    return tuple("-" if n is None else f"{n:,}" for n in (one and one.state_entries, one and one.parameters))  # type: ignore[return-value]


def _seconds(one: Measured | None) -> str:
    return "-" if one is None else f"{one.seconds:.0f}"


def _rate(runs: PaperRuns, variant: Variant) -> str:
    tried = ", ".join(f"{rate:g}: {loss:.3f}" for rate, loss in sorted(losses(runs, variant).items(), reverse=True))
    return f"{variant.rate:g}" + (f" (loss at {tried})" if tried else "")
