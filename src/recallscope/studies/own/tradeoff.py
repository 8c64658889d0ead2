"""Trade-off, our own experiment: recall against the size of the state, by zoology's protocol with facts, lengths and
vocabulary made smaller.

Every architecture has the same widths, learning rates, seeds, steps and training mixture. Of the rates, the one with
the highest validation accuracy (mean of seeds) counts. A run is said to learn if its mean accuracy over the tests is
at least `LEARNS` of the best that any rate and seed of its architecture and size reached, and if it binds keys to
values (`health.BEGUN`). These rules stand since before the first run.

Amended after 158 runs of another small protocol: 1 to 16 facts out of 64 tokens, 2,000 steps. More than half of its
training sequences had one fact, which needs no binding, and most models stayed at chance. Those runs are kept in
results/tradeoff/before_amendment.jsonl and used nowhere.

Departs from zoology: fresh sequences instead of a fixed set, RMSNorm for LayerNorm, our initial weights, no dropout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import isclose
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from recallscope.architectures.matrix_memory import MatrixMemory
from recallscope.health import BEGUN
from recallscope.presets import Fields, Preset
from recallscope.records import RunRecord
from recallscope.specs import find_architecture
from recallscope.studies.claims import Finding, Ruling, by_distance, own_check
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.markdown import table
from recallscope.studies.other_groups import facts_of, read_published
from recallscope.studies.paper_runs import Caption, PaperRuns, no_runs, sheet, source_line
from recallscope.theory.bounds import most_recall
from recallscope.theory.extremes import success_integral
from recallscope.theory.problem import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEARNS = 0.9
RATES = {"small": (0.01, 0.00316, 0.0316), "paper": (0.001, 0.00316, 0.01, 0.0316)}
SIZES = {"small": ((16, 4), (24, 6), (32, 8)), "paper": ((64, 16), (128, 32), (256, 64))}  # D, N of a head
HEADS = 2
WIDTH = 3  # taps of the convolution that is zoology's first layer
TWO_BLOCKS: Fields = {"num_layers": 2, "conv_width": 4}  # Mamba has its own convolution; zoology gives it no other


def published(kind: str, **fields: Any) -> Fields:
    """A layer as its authors have it, in zoology's model: a gated convolution before it, two heads."""
    spec = cast("type[MatrixMemory]", find_architecture(kind))
    return {"kind": kind} | spec.PUBLISHED | {"num_heads": HEADS, "stem_width": WIDTH} | fields


@dataclass(frozen=True, eq=False)
class Rival:
    """An architecture as its authors publish it; `law` says that every pair of neighbouring tokens is stored alike."""

    label: str
    model: Fields
    law: bool = False


RIVALS = (
    Rival("attention", published("attention", rotary=False)),
    Rival("attention, RoPE", published("attention")),
    Rival("linear attention", published("linear_attention"), law=True),
    Rival("Based", published("linear_attention", feature_map="taylor", normaliser=True, output_norm="none")),
    Rival("RetNet", published("retnet")),
    Rival("DeltaNet", published("delta_net")),
    Rival("Gated DeltaNet", published("gated_delta_net")),
    Rival("MesaNet", published("mesa_net")),
    Rival("Mamba", TWO_BLOCKS | {"kind": "mamba"}),
    Rival("Mamba-2", TWO_BLOCKS | {"kind": "mamba2", "num_heads": HEADS}),
    Rival("GLA", published("gla"), law=True),
    Rival("RWKV-7", published("rwkv7")),
)
QUICK = ("attention", "DeltaNet")

ZOOLOGY = Preset(
    "zoology's protocol: 4 to 64 facts out of 8,192 tokens, a gated convolution, then one mixer",
    {"kind": "mqar", "vocab_size": 8192, "num_facts": 64, "length": 256},
    published("attention", rotary=False, embed_dim=64, state_dim=16),
    {"batch_size": 256, "warmup_steps": 0, "flat_steps": 0, "decay_steps": 22_624, "weight_decay": 0.1, "beta_2": 0.999,
     "label_smoothing": 0.0, "eval_every": 707, "eval_size": 1000, "learning_rate": 0.00316, "stop_accuracy": 0.999,
     "training_facts": "zoology"},
)  # fmt: skip
SMALL = Preset(
    "zoology's protocol made smaller: 2 to 32 facts out of 128 tokens",
    {"kind": "mqar", "vocab_size": 128, "num_facts": 32, "length": 128},
    published("attention", rotary=False, embed_dim=32, state_dim=8),
    {"batch_size": 16, "warmup_steps": 200, "flat_steps": 800, "decay_steps": 3000, "eval_every": 500,
     "eval_size": 500, "stop_accuracy": 0.999, "training_facts": "zoology"},
    seeds=3,
)  # fmt: skip


def label_of(label: str, seed: int) -> str:
    """How parts are named."""
    return f"trade-off, {label}, seed {seed}"


@experiment(
    "tradeoff",
    "our own: recall against effective state, by zoology's protocol",
    presets={"zoology": ZOOLOGY, "zoology-small": SMALL},
)
def tradeoff(scale: Scale) -> Iterator[Part]:
    """One seed after another, so that a part of the runs is a study of fewer seeds; within it, rival by rival."""
    preset = ZOOLOGY if scale == "paper" else SMALL
    sizes, rates = SIZES["small" if scale == "quick" else scale], RATES["small" if scale == "quick" else scale]
    rivals = [one for one in RIVALS if one.label in QUICK] if scale == "quick" else RIVALS
    for seed in range(1 if scale == "quick" else 3):
        for place, rival in enumerate(rivals):
            yield part(
                label_of(rival.label, seed),
                preset,
                model=rival.model,
                train={"warmup_steps": 0, "flat_steps": 400, "decay_steps": 100, "eval_size": 100}
                if scale == "quick"
                else {},
                axes={"learning_rate": rates[:1] if scale == "quick" else rates, "seed": [seed]},
                zipped=dict(zip(("embed_dim", "state_dim"), zip(*sizes, strict=True), strict=True)),
                cut={"quick": "500 steps", "small": "smaller tasks and models, 4,000 steps", "paper": ""}[scale],
                turn=len(RIVALS) * seed + place,
            )


# What was measured


@dataclass(frozen=True)
class Trained:
    """All runs of a rival at one size."""

    rival: Rival
    records: tuple[RunRecord, ...]

    @property
    def entries(self) -> int:
        """Effective state entries; of a memory that grows, after the longest training sequence."""
        spec, task = self.records[0].spec.model, self.records[0].spec.task
        return spec.effective_entries or spec.state_entries_after(task.sequence_length) or 0

    @property
    def facts(self) -> tuple[int, ...]:
        """How many facts were tested."""
        return tuple(accuracies(self.records[0]))

    def at_rate(self, rate: float) -> list[RunRecord]:
        """The seeds of one rate."""
        return [one for one in self.records if one.spec.train.learning_rate == rate]

    @property
    def rates(self) -> list[float]:
        """Every rate that was tried, lowest first."""
        return sorted({one.spec.train.learning_rate for one in self.records})

    @cached_property
    def rate(self) -> float:
        """The one with the highest validation accuracy."""
        return max(self.rates, key=lambda rate: np.mean([one.val_accuracy for one in self.at_rate(rate)]))

    @property
    def works(self) -> bool:
        """Whether any seed learned at that rate."""
        return any(self.learned[self.rate])

    def seeds_on(self, facts: int) -> list[float]:
        """The accuracy of every seed at that rate."""
        return [accuracies(one)[facts] for one in self.at_rate(self.rate)]

    def accuracy_on(self, facts: int) -> float:
        """Their mean."""
        return float(np.mean(self.seeds_on(facts)))

    def above_law(self, facts: int) -> float:
        """How far it is above the formula of a linear state with as many entries."""
        vocab_size = self.records[0].spec.task.vocab_size
        return self.accuracy_on(facts) - float(predicted(np.array([self.entries]), facts, vocab_size)[0])

    @cached_property
    def learned(self) -> dict[float, list[bool]]:
        """By rate, whether each seed learned."""
        best = max(map(mean_accuracy, self.records))
        return {
            rate: [mean_accuracy(one) >= LEARNS * best and (one.binding or 0) >= BEGUN for one in self.at_rate(rate)]
            for rate in self.rates
        }


def accuracies(record: RunRecord) -> dict[int, float]:
    """By number of facts, fewest first."""
    return {int(n): p for n, p in (record.by_facts or {str(record.fields["num_facts"]): record.test_accuracy}).items()}


def mean_accuracy(record: RunRecord) -> float:
    """Over the numbers of facts that were tested, each counting alike."""
    return float(np.mean(list(accuracies(record).values())))


def trained(runs: PaperRuns) -> list[Trained]:
    """Every rival and size of which all rates were tried on one seed at least; of these, whole seeds only."""
    found = []
    for rival in RIVALS:
        by_size: dict[int, list[RunRecord]] = {}
        for seed in range(3):
            records = runs.records(label_of(rival.label, seed))
            if records and len(records) == len(runs.parts[label_of(rival.label, seed)].cells):
                for one in records:
                    by_size.setdefault(one.spec.model.size_of("embed_dim"), []).append(one)
        found += [Trained(rival, tuple(records)) for _, records in sorted(by_size.items())]
    return found


def missing(runs: PaperRuns) -> int:
    """Runs that are not there yet."""
    return runs.missing(*(label_of(rival.label, seed) for rival in RIVALS for seed in range(3)))


def predicted(entries: Array, facts: float, vocab_size: int, pairs_per_fact: int = 2) -> Array:
    """Recall of a linear state with so many entries, SNR² = S / pairs.

    With two pairs per fact those between facts are stored too, as by other groups' GLA (`other_groups`).
    """
    return success_integral(np.sqrt(np.asarray(entries, float) / (pairs_per_fact * facts)), vocab_size // 2)


# Findings

WANTED = 0.05  # mean absolute error of the formula


@tradeoff.findings
def learnability(runs: PaperRuns) -> Iterator[Finding]:
    """How many rates and seeds learn."""
    check = own_check("Which published layers are easy to train on recall?", "tradeoff-rates")
    shares = learning_shares(runs)
    if not shares:
        yield check.untested("no seed of an architecture is complete yet", missing(runs))
        return
    text = ", ".join(f"{label} {share:.2f}" for label, share in sorted(shares.items(), key=lambda one: -one[1]))
    yield check.answer(
        text,
        Ruling("holds approximately" if missing(runs) else "holds", "a ranking, complete if no run is missing"),
        f"fraction of (size, rate, seed) that learn: at least {LEARNS} of the best mean accuracy of the same "
        f"architecture and size, and binding of at least {BEGUN}",
        missing(runs),
    )


def learning_shares(runs: PaperRuns) -> dict[str, float]:
    """By rival, the fraction of its runs that learn."""
    seen: dict[str, list[bool]] = {}
    for one in trained(runs):
        seen.setdefault(one.rival.label, []).extend(yes for seeds in one.learned.values() for yes in seeds)
    return {label: float(np.mean(learned)) for label, learned in seen.items()}


@tradeoff.findings
def formula(runs: PaperRuns) -> Iterator[Finding]:
    """Is linear attention as good as the formula says?"""
    check = own_check("Does published linear attention recall as SNR² = S / (2 n) says?", "tradeoff")
    every = [one for one in trained(runs) if one.rival.law]
    here = [one for one in every if one.works]
    if not here:
        yield check.untested("no seed is complete yet, or none learned", missing(runs))
        return
    off = np.array([one.above_law(n) for one in here for n in one.facts])
    yield check.answer(
        f"mean absolute error {np.abs(off).mean():.3f}, at most {np.abs(off).max():.3f}, bias {off.mean():+.3f}",
        by_distance("mean absolute error", float(np.abs(off).mean()), WANTED, 3 * WANTED),
        f"{len(off)} settings of {len(here)} models, measured minus predicted; left out are {len(every) - len(here)} "
        f"models of which no seed learned",
        missing(runs),
    )


# Figures and tables


@tradeoff.figure("tradeoff", "ours: recall against effective state, by zoology's protocol made smaller")
def tradeoff_figure(runs: PaperRuns) -> Figure:
    """A panel for two numbers of facts; a line per architecture through its sizes, the formula and a bound."""
    from recallscope.figures.style import GUESS, PAGE

    found, text = trained(runs), source_line(runs, tradeoff.name, list(labels(runs)))
    if not found:
        raise no_runs(runs, tradeoff.name, "whole seeds")
    every, task = found[0].facts, found[0].records[0].spec.task
    V, L, grouped = task.vocab_size, task.sequence_length, by_rival(found)
    fixed = {label: members for label, members in grouped.items() if members[0].records[0].spec.model.state_entries}
    above = [label for label, members in fixed.items() if np.mean([one.above_law(every[-1]) for one in members]) > 0]
    caption = Caption(
        f"On {every[-1]} facts more is recalled than the law of a linear state of equal size predicts, averaged over "
        f"sizes, by {', '.join(above) or 'none'}; the state of attention grows",
        f"each point is a width; the state of attention is its keys and values after {L} tokens; bars run from the "
        f"worst to the best seed; hollow: no seed learned",
        f"V = {V}, seeds = {max(len(one.seeds_on(every[0])) for one in found)}, the best of {len(found[0].rates)} "
        f"learning rates for every point",
        text,
    )
    with sheet(PAGE, 3.4, caption) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        sizes = np.geomspace(min(one.entries for one in found) / 2, max(one.entries for one in found) * 1.5, 100)
        for facts, ax in zip((every[-min(3, len(every))], every[-1]), panels, strict=True):
            for pairs, style in ((2, "-"), (1, "--")):
                what = "facts and the pairs between them" if pairs == 2 else "facts only"
                ax.plot(sizes, predicted(sizes, facts, V, pairs), style, color=GUESS, lw=1, label=f"law: {what}")
            ax.plot(sizes, most_recall(sizes, facts, V), ":", color=GUESS, lw=1, label="bound: 1 bit per entry")
            for (label, members), (colour, marker) in zip(grouped.items(), looks(), strict=False):
                x, y = [one.entries for one in members], np.array([one.accuracy_on(facts) for one in members])
                ends = np.array([[min(one.seeds_on(facts)), max(one.seeds_on(facts))] for one in members]).T
                look: dict[str, Any] = {"color": colour, "marker": marker, "ms": 4, "lw": 1, "elinewidth": 0.7}
                ax.errorbar(x, y, np.abs(ends - y), label=label, zorder=2, **look)
                failed = [(one.entries, one.accuracy_on(facts)) for one in members if not one.works]
                ax.plot([S for S, _ in failed], [p for _, p in failed], marker, color=colour, mfc="white", ms=4)
            ax.set(xscale="log", ylim=(0, 1.02), xlabel="effective state entries", title=f"{facts} facts")
        panels[0].set_ylabel("accuracy")
        panels[1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def by_rival(found: list[Trained]) -> Mapping[str, list[Trained]]:
    """Sizes of every rival."""
    return {label: [one for one in found if one.rival.label == label] for label in dict.fromkeys(
        one.rival.label for one in found
    )}  # fmt: skip


def looks() -> list[tuple[str, str]]:
    """A colour and a marker per rival, in their order."""
    from recallscope.figures.style import BLACK, BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILION

    colours = (BLACK, BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY)
    return [(colour, marker) for marker in "o^s" for colour in colours]


@tradeoff.figure("tradeoff-rates", "ours: which learning rates learn")
def rates_figure(runs: PaperRuns) -> Figure:
    """A row per architecture and size, a column per rate: the fraction of seeds that learn."""
    from recallscope.figures.style import AMOUNT, COLUMN

    found, text = trained(runs), source_line(runs, tradeoff.name, list(labels(runs)))
    if not found:
        raise no_runs(runs, tradeoff.name, "whole seeds")
    rates = found[0].rates
    shares = np.array([[float(np.mean(one.learned[rate])) for rate in rates] for one in found])
    shares_of = learning_shares(runs)
    best, worst = max(shares_of, key=shares_of.__getitem__), min(shares_of, key=shares_of.__getitem__)
    caption = Caption(
        f"{best} learns in {shares_of[best]:.0%} of its runs, {worst} in {shares_of[worst]:.0%}",
        f"fraction of seeds that learn: at least {LEARNS} of the best mean accuracy of the same architecture and size, "
        f"and binding of at least {BEGUN}",
        f"seeds = {max(len(one.at_rate(rates[0])) for one in found)}",
        text,
    )
    with sheet(COLUMN + 1, 0.16 * len(found) + 1.4, caption) as figure:
        ax = figure.subplots()
        image = ax.imshow(shares, cmap=AMOUNT, vmin=0, vmax=1, aspect="auto")
        ax.set_xticks(range(len(rates)), [f"{rate:.2g}" for rate in rates])
        ax.set_yticks(range(len(found)), [named(one) for one in found], fontsize=6)
        ax.set_xlabel("learning rate")
        figure.colorbar(image, ax=ax)
    return figure


def named(one: Trained) -> str:
    """Architecture and width."""
    return f"{one.rival.label}, D = {one.records[0].spec.model.size_of('embed_dim')}"


def labels(runs: PaperRuns) -> Iterator[str]:
    """Of the parts that this scale has."""
    for seed in range(3):
        yield from (label for rival in RIVALS if (label := label_of(rival.label, seed)) in runs.parts)


def results_table(runs: PaperRuns, page: str = "") -> Iterator[str]:
    """The figures; and a row per architecture and size: accuracy by number of facts, and the rates that learn.

    Nothing without runs.
    """
    found = trained(runs)
    if not found:
        return
    yield from ("![recall against effective state size, for two numbers of facts](figures/tradeoff.png)", "")
    yield from ("![fraction of seeds that learn, by learning rate](figures/tradeoff-rates.png)", "")
    facts = found[0].facts
    rows = (
        [
            named(one),
            f"{one.entries:,}",
            *(f"{one.accuracy_on(n):.3f}" if one.works else f"*{one.accuracy_on(n):.3f}*" for n in facts),
            ", ".join(f"{value:.3f}" for value in one.seeds_on(facts[-1])),
            f"{one.rate:.2g}",
            f"{sum(map(sum, one.learned.values()))} of {len(one.records)}",
            ", ".join(f"{rate:.2g}" for rate, seeds in one.learned.items() if 2 * sum(seeds) > len(seeds)) or "none",
        ]
        for one in found
    )
    columns = [
        "architecture", "effective entries", *(f"{n} facts" for n in facts), "every seed, most facts", "rate",
        "learned", "rates at which most seeds learn",
    ]  # fmt: skip
    yield from table(columns, rows)


THEIRS = {"attention": "attention", "based": "Based", "gla": "GLA", "gated_delta_net": "Gated DeltaNet"}


def zoology_table(runs: PaperRuns, page: str = "") -> Iterator[str]:
    """Other groups' numbers by zoology's full protocol, a row per model, width and rate; our runs of these below."""
    cells = {one.label: one.cells for one in tradeoff.parts("paper")}
    theirs = read_published("zoology_protocol.csv")
    facts, off, rows = facts_of(theirs[0]), list[float](), list[list[str]]()
    for row in theirs:
        width, rate = int(row["d_model"]), float(row["learning_rate"])
        sizes = [str(width), f"{rate:.2g}"]
        rows.append([row["model"].replace("_", " "), *sizes, *(f"{float(row[f'n{n}']):.3f}" for n in facts)])
        for cell in (one for seed in range(3) for one in cells[label_of(THEIRS[row["model"]], seed)]):
            same = cell.spec.model.size_of("embed_dim") == width
            if (
                same
                and isclose(cell.spec.train.learning_rate, rate, rel_tol=0.01)
                and (ours := runs.store.get(cell.run))
            ):
                mine = accuracies(ours)
                off += [abs(p - float(row[f"n{n}"])) for n, p in mine.items()]
                name = f"**ours**, seed {cell.spec.seed}, {ours.steps:,} steps"
                rows.append([name, *sizes, *(f"{mine[n]:.3f}" if n in mine else "" for n in facts)])
    yield from table(["model", "width", "rate", *(f"{n} facts" for n in facts)], rows)
    if off:
        yield from ("", f"Ours differ from theirs by {np.mean(off):.3f} on average, by {max(off):.3f} at most.")
