"""The architecture comparison (docs/ARCHITECTURE_COMPARISON.md): its numbers as tables, and what follows from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import sqrt
from statistics import fmean

from recallscope.studies.architecture_variants import (
    CELLS,
    COMPARISON,
    LONGER,
    MINIMAL,
    PUBLISHED,
    QUESTIONS,
    RATES,
    REPEATED,
    RULES,
    VARIANTS,
    Measured,
    Size,
    Variant,
    age_gap,
    ages,
    best_rate,
    flagged,
    gains,
    label_of,
    measured,
    named,
    ranking,
)
from recallscope.studies.chapters.page import Chapter, bullets, chapter, sizes_of, table
from recallscope.studies.own.architectures import FLAT
from recallscope.studies.own.longer import chosen_rate, name_of
from recallscope.studies.paper_runs import PaperRuns

OVERWRITES, GUESSES = 0.9, 0.6  # accuracy with keys written twice from which a variant can, or cannot
PAIR = tuple(variant for variant in MINIMAL if variant.label in ("DeltaNet", "Gated DeltaNet"))


def architectures(runs: PaperRuns) -> Chapter:
    """Every architecture of the comparison, from whatever runs there are."""
    blocks = (
        *bullets(_what_follows(runs)),
        *_summary(runs),
        "![accuracy of every variant against its state size, in six settings](figures/architectures.png)",
        *_accuracy_table(runs),
        *_variant_table(runs),
        *_published_table(runs),
        *_method(),
    )
    labels = [label_of(what, variant) for variant in VARIANTS for what in ("rates", *QUESTIONS)]
    return chapter("Which recurrent architecture recalls the most per state entry?", blocks, runs, labels)


def _recall(runs: PaperRuns, variant: Variant) -> dict[tuple[int, int, int, int], Measured]:
    return measured(runs, "recall", variant)


def _repeated(runs: PaperRuns) -> dict[str, Measured]:
    """Accuracy with every key written twice, by label."""
    return {variant.label: one for variant in MINIMAL for one in measured(runs, "repeated", variant).values()}


def _number(one: Measured | None) -> str:
    """Mean, half of the interval, and all seeds."""
    if one is None:
        return "-"
    half = (one.interval[1] - one.interval[0]) / 2
    about = f" ±{half:.3f}" if half == half else ""
    return f"**{one.mean:.3f}**{about} ({', '.join(f'{seed:.4f}' for seed in one.seeds)})"


def _what_follows(runs: PaperRuns) -> Iterator[str]:
    if by_state := dict(ranking(runs, "state_entries")):
        first = next(iter(by_state))
        rules = {
            rule: [by_state[one.label] for one in MINIMAL if one.rule == rule and one.label in by_state]
            for rule in RULES
        }
        ranges = "; ".join(
            f"{rule}, {min(seen):+.3f}" + (f" to {max(seen):+.3f}" if len(seen) > 1 else "")
            for rule, seen in rules.items()
            if seen
        )
        yield (
            f"**{first} recalls the most per state entry.** Its accuracy is {by_state[first]:.3f} above that of the "
            f"best linear Mamba of equal effective state size. By update rule, the same difference is: {ranges}."
            + _recipe(runs)
        )
    if repeated := _repeated(runs):
        can = [(label, one.mean) for label, one in repeated.items() if one.mean >= OVERWRITES]
        cannot = [(label, one.mean) for label, one in repeated.items() if one.mean <= GUESSES]
        between = [(label, one.mean) for label, one in repeated.items() if GUESSES < one.mean < OVERWRITES]
        yield (
            f"**Decay or the delta rule lets a memory overwrite.** If every key is written twice and the last value "
            f"counts, these variants return it (accuracy at least {OVERWRITES}): {named(can)}. These return either "
            f"value with probability 1/2: {named(cannot)}."
            + (f" In between: {named(between)}." if between else "")
            + " Minimal attention has no positional encoding and minimal MesaNet no forget gate, so neither can tell "
            "which value came last; as published, both can."
        )
    gaps = {label: age_gap(places) for label, places in ages(runs).items()}
    if gaps:
        recent = {label: gap for label, gap in gaps.items() if gap > FLAT}
        old = {label: gap for label, gap in gaps.items() if gap < -FLAT}
        yield (
            "**The delta rule and a fixed decay favour recent facts.** At D = N = 16 the accuracy for the newest "
            f"quarter of the facts minus that for the oldest is {named(recent, sign='+')}"
            + (f"; {named(old, sign='+')}" if old else "")
            + f". For the other variants it is within {FLAT} of zero."
        )
    searched = {variant: rate for variant in VARIANTS if (rate := best_rate(runs, variant)) is not None}
    if searched:
        by_rate = {rate: [variant.label for variant, best in searched.items() if best == rate] for rate in RATES}
        usual = max(by_rate, key=lambda rate: len(by_rate[rate]))
        text = "".join(f", {rate:g} for {', '.join(v)}" for rate, v in by_rate.items() if v and rate != usual)
        other = [variant.label for variant, best in searched.items() if best != variant.rate]
        but = f" Trained at a rate other than that: {', '.join(other)}." if other else ""
        yield (
            f"**Learning rate.** Of {', '.join(f'{rate:g}' for rate in RATES)}, the one with the smallest loss after a "
            f"short search is {usual:g} for {len(by_rate[usual])} of {len(searched)} variants{text}.{but}"
        )
    if faults := flagged(runs):
        failed = Counter(text.partition(" at ")[0] for text in faults.values())
        yield (
            "**Runs with warnings**, which reflect the training more than the memory: "
            f"{', '.join(f'{label} {number}' for label, number in failed.items())}."
        )


def _recipe(runs: PaperRuns) -> str:
    """How far two delta rules are apart, here and after four times the steps."""
    rates = [chosen_rate(runs, variant) for variant in PAIR]
    if None in rates:
        return ""
    longer = [
        [record.test_accuracy for record in runs.records(label_of(name_of(rate or 0.0), variant))]
        for variant, rate in zip(PAIR, rates, strict=True)
    ]
    here = [[cells[cell].mean for cell in CELLS] for cells in (_recall(runs, variant) for variant in PAIR)]
    gap = fmean(p - q for p, q in zip(*here, strict=True))
    most = max(abs(p - q) for p, q in zip(*longer, strict=True))
    return (
        f" Do not rank within a rule: {PAIR[1].label}, whose learning rate was chosen by an early loss, is on average "
        f"{gap:.3f} below {PAIR[0].label} here, but within {most:.3f} of it at every setting after four times the "
        "steps."
    )


def _gain(runs: PaperRuns, variant: Variant, size: Size) -> str:
    """Mean gain over the best linear Mamba of that size, and half of its 95% interval from the noise of seeds."""
    known = [one for one in _recall(runs, variant).values() if getattr(one, size)]
    if not known:
        return "-"
    half = sqrt(sum(((one.interval[1] - one.interval[0]) / 2) ** 2 for one in known)) / len(known)
    return f"{fmean(gains(known, size)):+.3f} ±{half:.3f}"


def _summary(runs: PaperRuns) -> Iterator[str]:
    order = [label for label, _ in ranking(runs, "state_entries")]
    order += [variant.label for variant in MINIMAL if variant.label not in order and _recall(runs, variant)]
    by_label = {variant.label: variant for variant in MINIMAL}
    places, repeated = ages(runs), _repeated(runs)
    rows = []
    for label in order:
        variant = by_label[label]
        bits = fmean(one.bits_per_entry for one in _recall(runs, variant).values())
        rows.append(
            [
                label,
                variant.rule,
                _gain(runs, variant, "state_entries"),
                _gain(runs, variant, "parameters"),
                f"{bits:.3f}" if bits == bits else "-",
                f"{repeated[label].mean:.3f}" if label in repeated else "-",
                f"{age_gap(places[label]):+.3f}" if label in places else "-",
            ]
        )
    yield (
        "The second and third numbers are differences in accuracy from the best linear Mamba with as many effective "
        "state entries, or parameters, averaged over the settings below; ± is half of the 95% interval from seed "
        "variance. Bits are those about the values that the recall proves an effective state entry held."
    )
    columns = "variant", "update rule", "per state entry", "per parameter", "bits per entry", "keys written twice"
    yield table([*columns, "newest minus oldest quarter"], rows)


def _accuracy_table(runs: PaperRuns) -> Iterator[str]:
    yield "## Accuracy at equal D and N"
    yield "Mean over seeds ± half of its 95% interval; in parentheses, every seed."
    found = {variant: _recall(runs, variant) for variant in MINIMAL}
    rows = ([variant.label, *(_number(cells.get(cell)) for cell in CELLS)] for variant, cells in found.items())
    yield table(["variant", *map(sizes_of, CELLS)], rows)


def _variant_table(runs: PaperRuns) -> Iterator[str]:
    yield "## What each variant is"
    yield f"Sizes, and seconds per training run on one thread, at {sizes_of(CELLS[0])}."
    rows = []
    for variant in MINIMAL:
        first = _recall(runs, variant).get(CELLS[0])
        rows.append([variant.label, variant.update, *_sizes(first), f"{variant.rate:g}", _seconds(first)])
    columns = "variant", "update of the state", "effective state", "parameters", "learning rate", "seconds"
    yield table(columns, rows)


def _published_table(runs: PaperRuns) -> Iterator[str]:
    yield "## Two-layer models with the layers as published"
    yield (
        f"With their authors' norms, gates and convolutions, at {sizes_of(CELLS[0])}; {sum(LONGER.values())} steps. "
        "Attention is the exception: a layer with norms and a residual, but without positions."
    )
    found = {variant: _recall(runs, variant).get(CELLS[0]) for variant in PUBLISHED}
    rows = ([f.label, _number(one), *_sizes(one), f"{f.rate:g}", _seconds(one)] for f, one in found.items())
    yield table(["variant", "accuracy", "effective state", "parameters", "learning rate", "seconds"], rows)


def _sizes(one: Measured | None) -> tuple[str, str]:
    return tuple("-" if n is None else f"{n:,}" for n in (one and one.state_entries, one and one.parameters))  # type: ignore[return-value]


def _seconds(one: Measured | None) -> str:
    return "-" if one is None else f"{one.seconds:.0f}"


def _method() -> Iterator[str]:
    train, rates = COMPARISON.train, ", ".join(f"{rate:g}" for rate in RATES)
    yield "## Method"
    yield (
        "Minimal variants have one layer, one head, windows of two tokens, no norm and no output gate; the two Mambas "
        f"keep their activation. All use one recipe: AdamW, 2000 steps of {train['batch_size']} fresh sequences, test "
        f"sets of {train['eval_size']} sequences, seeds 0 and 1. The learning rate is that of {rates} with the "
        "smallest 500-step training loss (published layers: 3000 steps) at the first setting, on another seed. With "
        f"keys written twice, V = {REPEATED['vocab_size']}, N_f = {REPEATED['num_facts']}, D = 64, N = 16. Accuracy by "
        "recency uses one trained model per variant. Intervals use seed variance pooled over the settings of a "
        "variant, or over all published models. The best linear Mamba of a given size follows from its law "
        "(`trained-sharing`). A linear Mamba stores 2 D N entries, of which D N are effective; attention keeps N + D "
        "numbers per token; Based has about N (N + 3) / 2 rows where the others have N."
    )
    yield (
        "To repeat the runs: `recallscope reproduce architectures --scale small --store results/paper`. For the "
        "figures: `recallscope figures results/paper architectures`."
    )
    yield "## What it does not show"
    yield (
        "Two seeds, one task family, states of a few thousand entries, 2000 steps: do not read a ranking into "
        "differences smaller than the intervals. Three learning rates at one setting are a small search, and a variant "
        "that trains poorly here may train well with another recipe. Minimal variants are for theory; nobody uses them "
        "as they are. Keys are learned and random, so this does not show how the architectures compare on text, where "
        "keys resemble each other."
    )
