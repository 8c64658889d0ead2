"""Architectures, our own experiment: which recurrence recalls the most per state entry, can overwrite, and trains?

Every architecture in its bare form (one layer, one head, windows of two tokens, no norm, no output gate) at the same D
and N on three tasks, and with every key written twice; and published layers, two of them stacked. All have the same
recipe, and the same search of the learning rate on a seed of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from recallscope.studies.architecture_forms import (
    AGES,
    BARE,
    CELLS,
    COMPARISON,
    CURVES,
    FORMS,
    PUBLISHED,
    QUARTER,
    QUESTIONS,
    RATES,
    RULES,
    WANTED,
    Cell,
    Measured,
    Size,
    age_gap,
    ages,
    best_rate,
    flagged,
    label_of,
    law_errors,
    losses,
    measured,
    named,
    ranking,
    size_curves,
)
from recallscope.studies.claims import Finding, own_check, verdict_of
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.law_table import entry_of
from recallscope.studies.paper_runs import PaperRuns, no_runs, sheet, source_line
from recallscope.studies.stored_runs import facts_per_entry
from recallscope.theory.law import DIMENSIONS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from recallscope.figures.forms import Look

REPEATED = {"kind": "repeated", "vocab_size": 512, "num_facts": 8, "key_repeats": 2}
SEARCH_SEED = 100  # of the learning rates; no measurement has it
LONGER = {"warmup_steps": 100, "flat_steps": 700, "decay_steps": 2200}  # for the published layers
TINY = {"vocab_size": 64, "num_facts": 4}
QUICK = (BARE[0], BARE[6])
AGE_SEQUENCES = 4000  # behind the recall by age


@experiment("architectures", "our own: linear RNNs at equal state, on a CPU", presets={"architectures": COMPARISON})
def architectures(scale: Scale) -> Iterator[Part]:
    """For every form: the search of its learning rate, the cells, and keys that are written twice."""
    if scale == "quick":
        yield from _tiny()
        return
    seeds = {"small": range(2), "paper": range(5)}[scale]
    for form in FORMS:
        model, rate = form.fields, {"learning_rate": form.rate}
        steps = LONGER if form.published else {}  # deep layers do not start to recall in a quarter of the steps
        yield part(label_of("rates", form), COMPARISON, model=model, train=steps or QUARTER,
                   axes={"learning_rate": RATES, "seed": [SEARCH_SEED]})  # fmt: skip
        cells = CELLS[:1] if form.published else CELLS
        zipped = dict(zip(DIMENSIONS, zip(*cells, strict=True), strict=True))
        yield part(
            label_of("recall", form), COMPARISON, model=model, train=steps | rate, axes={"seed": seeds}, zipped=zipped
        )
        if not form.published:
            wide = model | {"embed_dim": 64, "state_dim": 16}
            yield part(
                label_of("repeated", form), COMPARISON, task=REPEATED, model=wide, train=rate, axes={"seed": seeds}
            )
            square = model | {"embed_dim": 16, "state_dim": 16}  # one of the cells, its weights kept
            yield part(
                label_of("by age", form),
                COMPARISON,
                model=square,
                train=rate,
                axes={"seed": seeds[:1]},
                keep_weights=True,
            )


def _tiny() -> Iterator[Part]:
    """The same questions, asked of two forms in seconds."""
    for form in QUICK:
        model, train = {**form.fields, "embed_dim": 16, "state_dim": 4}, QUARTER | {"eval_size": 500}
        for what, task in (("recall", TINY), ("repeated", REPEATED | TINY), ("by age", TINY)):
            yield part(label_of(what, form), COMPARISON, task=task, model=model, train=train, axes={"seed": [0]},
                       keep_weights=what == "by age", cut="tiny task")  # fmt: skip


@architectures.after_runs
def measure_ages(runs: PaperRuns) -> None:
    """Recall by the place of the fact, of every model that was not asked before."""
    runs.measure_inside(AGES, [label_of("by age", form) for form in BARE], recall_by_place)


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
    """Whether every form is trained with the best rate of its search."""
    check = own_check("Is every form trained at the best learning rate of its search?")
    best = {form.label: found for form in FORMS if (found := best_rate(runs, form)) is not None}
    missing = runs.missing(*(label_of("rates", form) for form in FORMS))
    if not best:
        yield check.untested("no search is complete yet", missing)
        return
    wrong = [form for form in FORMS if best.get(form.label, form.rate) != form.rate]
    text = "; ".join(
        f"{form.label} is trained at {form.rate:g}, and the search says {best[form.label]:g} (losses "
        + ", ".join(f"{loss:.3f} at {rate:g}" for rate, loss in losses(runs, form).items())
        + ")"
        for form in wrong
    )
    yield check.answer(
        text or f"yes, all {len(best)}",
        "does not hold" if wrong else "holds",
        f"{len(best)} of {len(FORMS)} searches complete, each of {len(RATES)} rates on a seed of its own: 500 steps, "
        "for published layers the whole training",
        missing,
    )


@architectures.findings
def per_size(runs: PaperRuns) -> Iterator[Finding]:
    """Who recalls most at equal state, and at equal parameters."""
    labels = [label_of("recall", form) for form in BARE]
    sizes: tuple[tuple[Size, str, str], ...] = (("state_entries", "state entry", "architectures"),
                                                ("parameters", "parameter", "architectures-parameters"))  # fmt: skip
    for size, name, figure in sizes:
        check = own_check(f"Which bare form recalls most per {name}?", figure)
        order = ranking(runs, size)
        if not order:
            yield check.untested("no cell that all measured forms have yet", runs.missing(*labels))
            continue
        yield check.answer(
            f"recall above that of the best linear Mamba with as many: {named(order, sign='+')}",
            "holds approximately" if runs.missing(*labels) else "holds",
            f"{len(order)} forms, mean over the cells that all have, mean of seeds; the linear Mamba by its law",
            runs.missing(*labels),
        )


@architectures.findings
def own_laws(runs: PaperRuns) -> Iterator[Finding]:
    """How far every form is from the law of its memory."""
    labels = [label_of("recall", form) for form in BARE]
    found = law_errors(runs)
    if not found:
        why = "no cell of a form that has a law yet"
        yield own_check("Do bare forms recall as their laws say?").untested(why, runs.missing(*labels))
    for law, forms in found.items():
        by_form = {form.label: entry_of(errors) for form, errors in forms.items()}
        together = entry_of(np.concatenate(list(forms.values())))
        wanted = WANTED.get(law, 0.01)
        yield own_check(f"Do bare forms recall as the law {law} says?").answer(
            f"off by {together.mean_error:.4f} on average, {together.max_error:.3f} at most ({together.bias:+.3f}); "
            + ", ".join(f"{label} {one.mean_error:.4f} ({one.max_error:.3f})" for label, one in by_form.items()),
            verdict_of(together.mean_error, wanted, 3 * wanted),
            f"{together.cells} cells, L = 4 N_f and V >= 256, mean of seeds, measured minus predicted; holds: at most "
            f"{wanted} on average",
            runs.missing(*labels),
        )


@architectures.findings
def overwriting(runs: PaperRuns) -> Iterator[Finding]:
    """Who answers with the last value of a key: the forms of every rule, against what is expected of them."""
    labels = [label_of("repeated", form) for form in BARE]
    found = {form.label: one for form in BARE for one in measured(runs, "repeated", form).values()}
    for question, rules, expected, limits in (
        ("Does the delta rule overwrite?", ("replaces",), 1.0, (0.01, 0.05)),
        ("Does a state that only adds guess?", ("adds",), 0.5, (0.03, 0.1)),
        ("Do fading, least squares and attention overwrite?", ("fades", "solves", "keeps all"), 1.0, (0.05, 0.1)),
    ):
        check = own_check(question, "architectures-repeated")
        mine = {label: one for label, one in found.items() if one.form.rule in rules}
        if not mine:
            yield check.untested("no such run yet", runs.missing(*labels))
            continue
        means = {label: one.mean for label, one in mine.items()}
        verdicts = {verdict_of(abs(p - expected), *limits) for p in means.values()}
        verdict = verdicts.pop() if len(verdicts) == 1 else "holds approximately"
        spread = "; ".join(f"{label} {', '.join(f'{p:.4f}' for p in one.seeds)}" for label, one in mine.items())
        yield check.answer(
            named(means), verdict, f"every key written twice; mean of seeds: {spread}", runs.missing(*labels)
        )


@architectures.findings
def by_age(runs: PaperRuns) -> Iterator[Finding]:
    """Recall of new facts and of old ones."""
    rule = {form.label: form.rule for form in BARE}
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
            "holds" if all(right) else "holds approximately" if any(right) else "does not hold",
            f"one model each, {AGE_SEQUENCES} sequences; flat: within {FLAT}",
        )


@architectures.findings
def published(runs: PaperRuns) -> Iterator[Finding]:
    """Two published layers on the first cell."""
    labels = [label_of("recall", form) for form in PUBLISHED]
    check = own_check("Do two published layers train by the same recipe?", "architectures")
    found = {form: one for form in PUBLISHED for one in measured(runs, "recall", form).values()}
    if not found:
        yield check.untested("no such run yet", runs.missing(*labels))
        return
    guess = 1 / CELLS[0][1]
    failed = [form.label for form, one in found.items() if one.mean <= 2 * guess]
    text = ", ".join(f"{form.label} {one.mean:.3f} at rate {form.rate:g}" for form, one in found.items())
    yield check.answer(
        f"{text}; did not train: {', '.join(failed) or 'none'}",
        "holds" if not failed else "holds approximately" if len(failed) < len(found) else "does not hold",
        f"V = 512, N_f = 16, D = 32, N = 8, 3000 steps, mean of seeds; not trained: at most 2/N_f = {2 * guess}",
        runs.missing(*labels),
    )


@architectures.findings
def faults(runs: PaperRuns) -> Iterator[Finding]:
    """Runs with a flag."""
    check = own_check("Which measurements should not be taken at face value?")
    labels = [label_of(what, form) for form in FORMS for what in QUESTIONS]
    done = {record.run for label in labels for record in runs.records(label)}
    if not done:
        yield check.untested("no runs yet", runs.missing(*labels))
        return
    found = flagged(runs)
    yield check.answer(
        "; ".join(found.values()) or "none has a flag",
        "holds approximately" if found else "holds",
        f"{len(done)} runs; diverged, at chance or still improving, as `recallscope store list` marks them",
    )


# Figures


def _looks() -> dict[str, Look]:
    """A colour for every rule, a marker for every form of it; published forms are hollow."""
    from recallscope.figures.forms import Look
    from recallscope.figures.style import BLACK, BLUE, GREEN, ORANGE, VERMILION

    colours = (BLUE, ORANGE, VERMILION, GREEN, BLACK)
    by_rule = {rule: [form for form in BARE if form.rule == rule] for rule in RULES}
    found = {}
    for (_, members), colour in zip(by_rule.items(), colours, strict=True):
        for form, marker in zip(members, "os^DP", strict=False):
            found[form.label] = Look(colour, marker)
    bare = {form.model["kind"]: found[form.label] for form in BARE[::-1]}  # the first of a kind
    for form in PUBLISHED:
        like = bare[form.model["kind"]]
        found[form.label] = Look(like.colour, like.marker, hollow=True)
    return found


@architectures.figure(
    "architectures", "ours: recall against state entries, fourteen architectures", size="state_entries"
)
@architectures.figure("architectures-parameters", "ours: the same against parameters", size="parameters")
def size_figure(runs: PaperRuns, size: Size) -> Figure:
    """A panel per cell: mean of seeds with interval; the law of the linear Mamba, and what the bound allows."""
    from recallscope.figures.forms import Dot, draw_sizes
    from recallscope.figures.style import PAGE

    text = source_line(runs, architectures.name, [label_of("recall", form) for form in FORMS])
    cells: dict[Cell, list[Measured]] = {}
    for form in FORMS:
        for cell, one in measured(runs, "recall", form).items():
            if getattr(one, size):
                cells.setdefault(cell, []).append(one)
    if not cells:
        raise no_runs(runs, architectures.name, f"runs without {size}")
    looks, columns = _looks(), min(len(cells), 3)
    rows = -(-len(cells) // columns)
    note = "mean of seeds, 95 % intervals; forms of one size stand side by side; hollow: two published layers"
    with sheet(PAGE, 2.3 * rows + 1.6, f"{note}; {text}") as figure:
        axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
        for ax, (cell, members) in zip(axes.flat, sorted(cells.items(), key=_place), strict=False):
            dots = [Dot(m.form.label, getattr(m, size), m.seeds, m.interval) for m in members]
            V, N_f, D, N = cell
            draw_sizes(dots, ax, looks=looks, curves=size_curves(cell, members, size))
            ax.set_title(f"$V={V}$, $N_f={N_f}$, $D={D}$, $N={N}$", fontsize=8)
        for ax in axes.flat[len(cells) :]:
            ax.set_visible(False)
        for row in axes:
            row[0].set_ylabel("accuracy")
        axes[-1, columns // 2].set_xlabel(size.replace("_", " "))
        entries: dict[str, Any] = {}
        for ax in axes.flat:
            entries |= dict(zip(*ax.get_legend_handles_labels()[::-1], strict=True))
        order = sorted(entries, key=[*looks, *CURVES].index)
        figure.legend([entries[name] for name in order], order, loc="outside upper center", ncols=4)
    return figure


def _place(item: tuple[Cell, object]) -> int:
    return CELLS.index(item[0]) if item[0] in CELLS else len(CELLS)


@architectures.figure("architectures-age", "ours: recall by the age of the fact")
def age_figure(runs: PaperRuns) -> Figure:
    """A panel per rule, a line per form."""
    from recallscope.figures.accuracy_panels import draw_missing
    from recallscope.figures.forms import draw_ages
    from recallscope.figures.style import PAGE

    text = source_line(runs, architectures.name, [label_of("by age", form) for form in BARE])
    found = ages(runs)
    if not found:
        raise no_runs(runs, architectures.name, "no recall by age")
    looks = _looks()
    here = {form.rule for form in BARE if label_of("by age", form) in runs.parts}
    every = ("adds",), ("fades",), ("replaces",), ("solves", "keeps all")
    groups = [rules for rules in every if here.intersection(rules)]
    lines = [{f.label: found[f.label] for f in BARE if f.rule in rules and f.label in found} for rules in groups]
    fields = next(record.fields for form in BARE for record in runs.records(label_of("by age", form)))
    where = ", ".join(
        f"{letter} = {fields[name]}" for letter, name in zip(("V", "N_f", "D", "N"), DIMENSIONS, strict=True)
    )
    with sheet(PAGE, 3.3, f"{where}; one model each, {AGE_SEQUENCES} sequences; {text}") as figure:
        panels = figure.subplots(1, len(groups), sharey=True, squeeze=False)[0]
        for ax, rules, shown in zip(panels, groups, lines, strict=True):
            title = (
                f"the state {', '.join(rules)}" if rules[0] in ("adds", "fades", "replaces") else "solves; keeps all"
            )
            if shown:
                draw_ages(shown, ax, looks=looks, title=title)
            else:
                draw_missing(ax, title=title, box_aspect=None)
        figure.axes[0].set_ylabel("recall")
    return figure


@architectures.figure("architectures-repeated", "ours: who can overwrite")
def repeated_figure(runs: PaperRuns) -> Figure:
    """Accuracy with every key written twice: all seeds of every form."""
    from recallscope.figures.forms import draw_seeds
    from recallscope.figures.style import PAGE

    text = source_line(runs, architectures.name, [label_of("repeated", form) for form in BARE])
    found = {
        f: one
        for f in sorted(BARE, key=lambda form: RULES.index(form.rule))
        for one in measured(runs, "repeated", f).values()
    }
    fields = next(record.fields for form in BARE for record in runs.records(label_of("repeated", form)))
    where = ", ".join(
        f"{letter} = {fields[name]}" for letter, name in zip(("V", "N_f", "D", "N"), DIMENSIONS, strict=True)
    )
    with sheet(0.75 * PAGE, 0.22 * len(found) + 1.3, f"{where}, every key written twice; all seeds; {text}") as figure:
        seeds = {form.label: one.seeds for form, one in found.items()}
        draw_seeds(seeds, figure.subplots(), looks=_looks(), guess=0.5, name="guess: 1/2")
    return figure


architectures.figure("facts-per-entry", "ours: facts per state entry, by the laws and as trained")(facts_per_entry)
