"""Trade-off, our own experiment: recall against the size of the state, by zoology's protocol with facts, lengths and
vocabulary made smaller.

Every architecture has the same widths, learning rates, seeds, steps and training mixture. Of the rates, the one with
the highest validation accuracy (mean of seeds) counts. A run is said to learn if its mean accuracy over the tests is
at least `LEARNS` of the best that any rate and seed of its architecture and size reached, and if it binds keys to
values (`health.BEGUN`). These rules stand since before the first run.

Amended after 137 runs of another small protocol: 1 to 16 facts out of 64 tokens, 2,000 steps. More than half of its
training sequences had one fact, which needs no binding, and most models stayed at chance. Those runs are kept in
results/tradeoff and used nowhere.

Departs from zoology: fresh sequences instead of a fixed set, RMSNorm for LayerNorm, our initial weights, no dropout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from recallscope.health import BEGUN
from recallscope.presets import Fields, Preset
from recallscope.records import RunRecord
from recallscope.specs import find_architecture
from recallscope.studies.claims import Finding, Ruling, by_distance, own_check
from recallscope.studies.experiment import Part, Scale, experiment, part
from recallscope.studies.markdown import table
from recallscope.studies.other_groups import read_published
from recallscope.studies.paper_runs import PaperRuns, no_runs, sheet, source_line
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
    return {"kind": kind} | find_architecture(kind).PUBLISHED | {"num_heads": HEADS, "stem_width": WIDTH} | fields


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


def label_of(rival: Rival, seed: int) -> str:
    """How parts are named."""
    return f"trade-off, {rival.label}, seed {seed}"


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
                label_of(rival, seed),
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
    def accuracies(self) -> list[float]:
        """Of every seed on the target, at that rate."""
        return [one.test_accuracy for one in self.at_rate(self.rate)]

    def accuracy_on(self, facts: int) -> float:
        """Mean of seeds at that rate."""
        return float(np.mean([accuracies(one)[facts] for one in self.at_rate(self.rate)]))

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
            records = runs.records(label_of(rival, seed))
            if records and len(records) == len(runs.parts[label_of(rival, seed)].cells):
                for one in records:
                    by_size.setdefault(one.spec.model.size_of("embed_dim"), []).append(one)
        found += [Trained(rival, tuple(records)) for _, records in sorted(by_size.items())]
    return found


def missing(runs: PaperRuns) -> int:
    """Runs that are not there yet."""
    return runs.missing(*(label_of(rival, seed) for rival in RIVALS for seed in range(3)))


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
    here = [one for one in trained(runs) if one.rival.law]
    if not here:
        yield check.untested("no seed is complete yet", missing(runs))
        return
    off = np.array([
        one.accuracy_on(n) - float(predicted(np.array([one.entries]), n, one.records[0].spec.task.vocab_size)[0])
        for one in here for n in one.facts
    ])  # fmt: skip
    yield check.answer(
        f"mean absolute error {np.abs(off).mean():.3f}, at most {np.abs(off).max():.3f}, bias {off.mean():+.3f}",
        by_distance("mean absolute error", float(np.abs(off).mean()), WANTED, 3 * WANTED),
        f"{len(off)} settings, measured minus predicted",
        missing(runs),
    )


# Figures and tables


@tradeoff.figure("tradeoff", "ours: recall against effective state, by zoology's protocol made smaller")
def tradeoff_figure(runs: PaperRuns) -> Figure:
    """A line per architecture through its sizes; the formula and the information bound."""
    from recallscope.figures.style import GUESS, PAGE

    found, text = trained(runs), source_line(runs, tradeoff.name, list(labels(runs)))
    if not found:
        raise no_runs(runs, tradeoff.name, "whole seeds")
    task = found[0].records[0].spec.task
    facts, V = found[0].facts[-1], task.vocab_size
    note = f"{facts} facts, V = {V}; mean of seeds at the best rate, bars from the worst to the best seed; {text}"
    with sheet(PAGE, 3.6, note) as figure:
        ax = figure.subplots()
        sizes = np.geomspace(min(one.entries for one in found) / 2, max(one.entries for one in found) * 1.5, 100)
        for pairs, style in ((2, "-"), (1, "--")):
            what = "facts and the pairs between them" if pairs == 2 else "facts only"
            ax.plot(sizes, predicted(sizes, facts, V, pairs), style, color=GUESS, lw=1, label=f"law: {what}")
        ax.plot(sizes, most_recall(sizes, facts, V), ":", color=GUESS, lw=1, label="bound: 1 bit per entry")
        for (label, members), (colour, marker) in zip(by_rival(found).items(), looks(), strict=False):
            x, y = [one.entries for one in members], [float(np.mean(one.accuracies)) for one in members]
            ends = np.array([[min(one.accuracies), max(one.accuracies)] for one in members]).T
            ax.errorbar(
                x, y, np.abs(ends - np.array(y)), color=colour, marker=marker, ms=4, lw=1, elinewidth=0.7, label=label
            )
        ax.set(xscale="log", ylim=(0, 1.02), xlabel="effective state entries (attention: keys and values of 64 tokens)")
        ax.set_ylabel(f"accuracy on {facts} facts")
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))
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
    with sheet(COLUMN + 1, 0.16 * len(found) + 1.4, f"fraction of seeds that learn; {text}") as figure:
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
        yield from (label for rival in RIVALS if (label := label_of(rival, seed)) in runs.parts)


def results_table(runs: PaperRuns, page: str = "") -> Iterator[str]:
    """A row per architecture and size: accuracy by number of facts at the best rate, and which rates learn."""
    found = trained(runs)
    facts = found[0].facts if found else ()
    rows = (
        [
            named(one),
            f"{one.entries:,}",
            *(f"{one.accuracy_on(n):.3f}" for n in facts),
            ", ".join(f"{value:.3f}" for value in one.accuracies),
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


def published_table(runs: PaperRuns, page: str = "") -> Iterator[str]:
    """Other groups' numbers by zoology's full protocol: a row per model, width and rate."""
    rows = read_published("zoology_protocol.csv")
    facts = [name for name in rows[0] if name[0] == "n" and name[1:].isdigit()]
    yield from table(
        ["model", "width", "rate", *(f"{name[1:]} facts" for name in facts)],
        ([row["model"].replace("_", " "), row["d_model"], f"{float(row['learning_rate']):.2g}",
          *(f"{float(row[name]):.3f}" for name in facts)] for row in rows),
    )  # fmt: skip
