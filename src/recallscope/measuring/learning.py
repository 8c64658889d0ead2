"""Train a model until it is known whether it learns the task, and what may be said of its accuracy.

A run that is still at chance says nothing about what the model can hold: it names values of the context without having
bound them to keys, as every model does at first. So it is trained by a curriculum over the number of facts, and
extended to twice and to four times the steps, with the learning rates searched anew; if it never begins, the answer is
"did not learn under this recipe", and no number is derived from its accuracy. A cosine schedule makes every run look
flat at its end, so a run that has begun counts as converged only if doubling its steps gains less than `SETTLED`, or
cannot gain more. If doubling them *loses* that much, the learning rate is too high for a longer run: the next lower one
is tried, and the best stage is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from recallscope.health import examine, left_chance, why_at_chance
from recallscope.measuring.training_runs import (
    RATES,
    RateSearch,
    Trainer,
    Training,
    lengthened,
    search_rate,
    with_train,
)
from recallscope.records import RunRecord
from recallscope.specs import RunSpec

FACTORS = (1, 2, 4)  # times the recipe's steps
SEARCHED = (1, 2)  # of these, where rates are searched (anew) while nothing has begun
SETTLED = 0.02  # doubling the steps gains less than this: converged; it loses as much: unstable
Word = Literal["converged", "still rising", "unstable", "did not learn", "seeds differ", "not extended", "as it is"]


@dataclass(frozen=True)
class Verdict:
    """What may be said of an accuracy, why, and where nothing may be: what was looked at, and what to try next."""

    word: Word
    sentence: str
    checked: tuple[str, ...] = ()
    next_command: str = ""

    @property
    def learned(self) -> bool:
        """Whether sizes, bits and ranks may be derived from the accuracy."""
        return self.word not in ("did not learn", "seeds differ")


@dataclass(frozen=True)
class Stage:
    """All seeds at one number of steps and one learning rate."""

    run: RunSpec
    trainings: list[Training]

    @property
    def steps(self) -> int:
        """At most."""
        return self.run.train.total_steps

    @property
    def rate(self) -> float:
        """The learning rate."""
        return self.run.train.learning_rate

    @property
    def records(self) -> list[RunRecord]:
        """One for each seed."""
        return [training.record for training in self.trainings]

    @property
    def accuracy(self) -> float:
        """Mean over seeds."""
        return sum(record.test_accuracy for record in self.records) / len(self.trainings)

    @property
    def begun(self) -> list[bool]:
        """Of each seed, whether it has left chance."""
        return [left_chance(record.model_dump(mode="json")) for record in self.records]


@dataclass
class Learning:
    """The stages so far, and the searches before them."""

    stages: list[Stage] = field(default_factory=list)
    searches: list[RateSearch] = field(default_factory=list)

    @property
    def last(self) -> Stage:
        """The latest."""
        return self.stages[-1]

    @property
    def best(self) -> Stage:
        """The most accurate of those in which every seed has left chance; the latest if there is none."""
        begun = (stage for stage in self.stages if all(stage.begun))
        return max(begun, key=lambda stage: stage.accuracy, default=self.last)

    @property
    def gain(self) -> float | None:
        """Of the latest stage over the best before it; None if it is the first to leave chance."""
        before = [stage.accuracy for stage in self.stages[:-1] if all(stage.begun)]
        return self.last.accuracy - max(before) if before else None

    @property
    def settled(self) -> bool:
        """Whether more steps would gain little: all seeds left chance, and doubling changed less than `SETTLED`."""
        if not all(self.last.begun):
            return False
        return self.last.accuracy > 1 - SETTLED or (self.gain is not None and abs(self.gain) < SETTLED)

    @property
    def fell(self) -> bool:
        """Whether the latest stage lost what an earlier one had reached."""
        return self.gain is not None and self.gain <= -SETTLED

    def verdict(self, *, extended: bool) -> Verdict:
        """What may be said of the best stage."""
        best, gain = self.best, self.gain
        seeds, steps, accuracy = len(best.begun), best.steps, best.accuracy
        how_many = sum(best.begun)
        if how_many == 0:
            tried = ", ".join(dict.fromkeys(f"{stage.steps:,}" for stage in self.stages))
            closest = max(best.records, key=lambda record: record.test_accuracy).model_dump(mode="json")
            why = examine(closest).sentence if closest["flag"] == "diverged" else why_at_chance(closest)
            return Verdict(
                "did not learn",
                f"did not learn under this recipe: after {tried} steps it {why} A model that cannot recall and one "
                f"that was not trained well enough look alike.",
            )
        if how_many < seeds:
            return Verdict(
                "seeds differ",
                f"{how_many} of {seeds} seeds learned; the others are at chance after {steps:,} steps, and their mean "
                f"says nothing.",
            )
        if self.settled and accuracy > 1 - SETTLED:
            return Verdict("converged", f"converged: accuracy {accuracy:.4f} after at most {steps:,} steps")
        if not extended or gain is None:
            return Verdict(
                "not extended",
                f"trained for the {steps:,} steps that were asked for, and not longer: whether it has converged is "
                f"not known",
            )
        if self.fell:
            reached = ", ".join(f"{one.accuracy:.4f} ({one.steps:,} steps at {one.rate:g})" for one in self.stages)
            return Verdict(
                "unstable",
                f"unstable: longer runs, or runs at a lower learning rate, lose what a shorter one reached: {reached}. "
                f"The accuracy is the best of these and a lower limit",
            )
        how = f"doubling the steps to {self.last.steps:,}"
        if self.last.rate != self.stages[-2].rate:
            how = f"a learning rate of {self.last.rate:g} for {self.last.steps:,} steps"
        if self.settled:
            return Verdict("converged", f"converged: {how} changed the accuracy by {gain:+.4f}")
        return Verdict("still rising", f"still rising: {how} gained {gain:+.4f}. The accuracy is a lower limit")


def learn(
    run: RunSpec,
    train: Trainer,
    *,
    seeds: int = 1,
    search: bool = True,
    curriculum: bool = True,
    extend: bool = True,
    enough: float = 1.0,
) -> Learning:
    """Train all seeds, for twice and four times the steps while they are at chance or still gain from it.

    Where nothing, or not every seed, leaves chance, training goes on by the curriculum, unless `curriculum` is false.
    A stage that loses what an earlier one reached is repeated at the next lower learning rate of the search.
    Accuracies from `enough` on need no more steps.
    """
    found = Learning()
    factors, rate = list(FACTORS if extend else FACTORS[:1]), run.train.learning_rate
    facts: str = run.train.training_facts
    while factors:
        factor = factors.pop(0)
        longer = with_train(lengthened(run, factor), training_facts=facts)
        if search and factor in SEARCHED and not any(search.begun for search in found.searches):
            found.searches.append(search_rate(longer, train, curriculum=curriculum))
            rate, facts = found.searches[-1].chosen, found.searches[-1].training_facts
        stage = with_train(longer, learning_rate=rate, training_facts=facts)
        found.stages.append(Stage(stage, train(_seeds(stage, seeds))))
        if found.settled or (all(found.last.begun) and found.last.accuracy >= enough):
            break
        if curriculum and not all(found.last.begun):
            facts = "curriculum"
        if found.fell:
            at_these_steps = [one.accuracy for one in found.stages if one.steps == found.last.steps]
            lower = max((lower for lower in RATES if lower < rate), default=None)
            if search and len(at_these_steps) == 1 and lower is not None:
                factors, rate = [factor, *factors], lower
            elif at_these_steps[-1] - at_these_steps[0] < SETTLED:  # the lower rate does no better
                break
    return found


def _seeds(run: RunSpec, count: int) -> Sequence[RunSpec]:
    """The same run with this seed and those after it."""
    return [run.model_copy(update={"seed": run.seed + extra}) for extra in range(count)]
