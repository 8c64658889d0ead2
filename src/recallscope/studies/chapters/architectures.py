"""The architecture comparison (docs/ARCHITECTURE_COMPARISON.md): its numbers as tables, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

from recallscope.studies.architecture_variants import (
    CELLS,
    COMPARISON,
    LONGER,
    MINIMAL,
    PUBLISHED,
    QUESTIONS,
    RATES,
    REPEATED,
    VARIANTS,
    Measured,
    Variant,
    age_gap,
    ages,
    best_rate,
    flagged,
    label_of,
    losses,
    measured,
    named,
    ranking,
)
from recallscope.studies.chapters.page import Chapter, bullets, chapter, sizes_of, table
from recallscope.studies.own.architectures import FLAT
from recallscope.studies.paper_runs import PaperRuns

OVERWRITES, GUESSES = 0.9, 0.6  # accuracy with keys written twice from which a variant can, or cannot


def architectures(runs: PaperRuns) -> Chapter:
    """Every architecture of the comparison, from whatever runs there are."""
    blocks = (
        "## What follows",
        *bullets(_what_follows(runs)),
        "![recall of every variant against the size of its state, in six cells](figures/architectures.png)",
        *_accuracy_table(runs),
        *_variant_table(runs),
        *_published_table(runs),
        *_method(),
    )
    labels = [label_of(what, variant) for variant in VARIANTS for what in ("rates", *QUESTIONS)]
    return chapter("Which recurrent architecture recalls the most per state entry?", blocks, runs, labels)


def _recall(runs: PaperRuns, variant: Variant) -> dict[tuple[int, int, int, int], Measured]:
    return measured(runs, "recall", variant)


def _number(one: Measured | None) -> str:
    """Mean, half of the interval, and all seeds."""
    if one is None:
        return "-"
    half = (one.interval[1] - one.interval[0]) / 2
    about = f" ±{half:.3f}" if half == half else ""
    return f"**{one.mean:.3f}**{about} ({', '.join(f'{seed:.4f}' for seed in one.seeds)})"


def _what_follows(runs: PaperRuns) -> Iterator[str]:
    by_state, by_parameters = ranking(runs, "state_entries"), ranking(runs, "parameters")
    if by_state:
        (first, gain), held = by_state[0], _bits(runs)
        yield (
            f"**Per effective state entry** {first} recalls most: {gain:+.3f} above the best linear Mamba with as many "
            f"entries, on average over the cells that all measured variants have. In order: "
            f"{named(by_state, sign='+')}. In bits about the values that a state entry provably holds: {named(held)}."
        )
    if by_parameters:
        yield (
            f"**Per parameter** {by_parameters[0][0]} recalls most. Recall above the best linear Mamba with as many "
            f"parameters, in order: {named(by_parameters, sign='+')}."
        )
    repeated = {variant.label: one.mean for variant in MINIMAL for one in measured(runs, "repeated", variant).values()}
    if repeated:
        can = {label: p for label, p in repeated.items() if p >= OVERWRITES}
        cannot = {label: p for label, p in repeated.items() if p <= GUESSES}
        between = {label: p for label, p in repeated.items() if label not in can | cannot}
        yield (
            f"**Overwriting**, every key written twice and the last value asked for: {named(can)} can (at least "
            f"{OVERWRITES}); {named(cannot)} cannot, and guess between both values; in between: {named(between)}."
        )
    gaps = {label: age_gap(places) for label, places in ages(runs).items()}
    if gaps:
        flat = {label: gap for label, gap in gaps.items() if abs(gap) <= FLAT}
        falling = {label: gap for label, gap in gaps.items() if gap > FLAT}
        rising = {label: gap for label, gap in gaps.items() if gap < -FLAT}
        yield (
            f"**Age**, recall of the newest quarter of the facts less that of the oldest, at D = N = 16: new facts "
            f"are recalled better by {named(falling, sign='+')}; old ones by {named(rising, sign='+')}; within {FLAT}: "
            f"{named(flat, sign='+')}."
        )
    searched = {variant: rate for variant in VARIANTS if (rate := best_rate(runs, variant)) is not None}
    if searched:
        by_rate = {rate: [variant.label for variant, best in searched.items() if best == rate] for rate in RATES}
        text = "; ".join(f"{rate:g} for {', '.join(labels)}" for rate, labels in by_rate.items() if labels)
        other = [variant.label for variant, rate in searched.items() if rate != variant.rate]
        but = f" Trained at another rate than that: {', '.join(other)}." if other else ""
        yield f"**To train**, the best of {', '.join(f'{rate:g}' for rate in RATES)} is {text}.{but}"
    faults = flagged(runs)
    if faults:
        yield f"**Not to be taken at face value**: {'; '.join(faults.values())}."


def _bits(runs: PaperRuns) -> list[tuple[str, float]]:
    """Mean bits per state entry, most first."""
    found = {variant.label: [one.bits_per_entry for one in _recall(runs, variant).values()] for variant in MINIMAL}
    known = {label: mean(bits) for label, bits in found.items() if bits and all(bit == bit for bit in bits)}
    return sorted(known.items(), key=lambda item: -item[1])


def _accuracy_table(runs: PaperRuns) -> Iterator[str]:
    yield "## Recall at equal D and N"
    yield "Mean of seeds, half of its 95 % interval, and in brackets every seed."
    found = {variant: _recall(runs, variant) for variant in MINIMAL}
    rows = ([variant.label, *(_number(cells.get(cell)) for cell in CELLS)] for variant, cells in found.items())
    yield table(["variant", *map(sizes_of, CELLS)], rows)


def _variant_table(runs: PaperRuns) -> Iterator[str]:
    yield "## What each variant is, and what it takes"
    yield f"State entries, parameters and seconds of a training (one thread) at {sizes_of(CELLS[0])}."
    rows = []
    for variant in MINIMAL:
        first, again = _recall(runs, variant).get(CELLS[0]), [*measured(runs, "repeated", variant).values(), None][0]
        what = variant.label, variant.update, variant.rule
        rows.append([*what, *_sizes(first), _number(again), _rate(runs, variant), _seconds(first)])
    columns = "variant", "update of the state", "rule", "effective state", "parameters", "keys written twice"
    yield table([*columns, "learning rate", "seconds"], rows)


def _published_table(runs: PaperRuns) -> Iterator[str]:
    yield "## Two published layers"
    steps = sum(LONGER.values())
    yield f"With the norms, gates and convolutions of their authors, at {sizes_of(CELLS[0])}; {steps} steps."
    found = {variant: _recall(runs, variant).get(CELLS[0]) for variant in PUBLISHED}
    rows = ([f.label, _number(one), *_sizes(one), _rate(runs, f), _seconds(one)] for f, one in found.items())
    yield table(["variant", "recall", "effective state", "parameters", "learning rate", "seconds"], rows)


def _sizes(one: Measured | None) -> tuple[str, str]:
    return tuple("-" if n is None else f"{n:,}" for n in (one and one.state_entries, one and one.parameters))  # type: ignore[return-value]


def _seconds(one: Measured | None) -> str:
    return "-" if one is None else f"{one.seconds:.0f}"


def _rate(runs: PaperRuns, variant: Variant) -> str:
    tried = ", ".join(f"{rate:g}: {loss:.3f}" for rate, loss in sorted(losses(runs, variant).items(), reverse=True))
    return f"{variant.rate:g}" + (f" (loss at {tried})" if tried else "")


def _method() -> Iterator[str]:
    train, rates = COMPARISON.train, ", ".join(f"{rate:g}" for rate in RATES)
    yield "## How it was done"
    yield (
        "Minimal variants have one layer, one head, windows of two tokens, no norm and no output gate; two Mambas keep "
        f"their activation. All have the same recipe: AdamW, 2000 steps, {train['batch_size']} fresh sequences each, "
        f"tests of {train['eval_size']} sequences, seeds 0 and 1. The learning rate is the best of {rates} by the loss "
        "of a training of 500 steps (published layers: all 3000) on another seed at the first cell, and is kept for "
        "all cells. Keys written twice: V "
        f"{REPEATED['vocab_size']}, N_f {REPEATED['num_facts']}, D 64, N 16. Recall by age is asked of one trained "
        "model per variant. Intervals pool the noise of seeds over the cells of a variant, of published layers over "
        "all of them. The linear Mamba of equal size is the best over N of what its law (`trained-sharing`) gives; it "
        "stores 2 D N numbers. State entries are those after the last token; attention keeps N + D numbers per token, "
        "Based has about N (N + 3) / 2 rows where the others have N."
    )
    yield (
        "Redo the runs with `recallscope reproduce architectures --scale small --store results/paper`, the figures "
        "with `recallscope figures results/paper architectures`, and this page with `recallscope report`."
    )
    yield "## What it does not show"
    yield (
        "Two seeds, one task family, models of a few thousand numbers of state and 2000 steps: an order that differs "
        "by less than the intervals is no order. Three learning rates at one cell are a small search, and a variant "
        "that trains poorly here may train well by a recipe of its own. Minimal variants are for theory; nobody uses "
        "them as they are. Keys are learnt and random, so nothing is said of text, where keys resemble one another."
    )
