"""Capacity as one number: the most facts, or the least size of a model, at which trained recall reaches a target.

Few training runs instead of a grid: the law of the architecture proposes a value, training says what it really gives, a
probit fit of all accuracies so far against the law's variable moves the proposal, until a value that reaches the
target and its neighbour that does not are both trained. Without a law the value is doubled or halved until the target
lies between two training runs, and the fit is against log n.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from scipy.special import ndtr, ndtri

from recallscope.health import why_at_chance
from recallscope.measuring.learning import learn
from recallscope.measuring.training_runs import RateSearch, Trainer, search_rate, with_train
from recallscope.records import RunRecord
from recallscope.registry import suggestion
from recallscope.runs.plan import estimated_cost
from recallscope.runs.views import clock
from recallscope.specs import LARGEST, TASKS, RunSpec, find_architecture, flat_fields, path_of
from recallscope.theory.law import Law, law_of
from recallscope.theory.problem import Problem, probability

SEED_SCATTER = 0.005  # assumed standard deviation of trained accuracy between seeds; linear models show .001 to .003
QUANTILE = 1.96


@dataclass(frozen=True, eq=False)
class ProbitFit:
    """accuracy = Phi(intercept + slope x), and the covariance of the two."""

    intercept: float
    slope: float
    covariance: NDArray[np.float64]

    def accuracy(self, x: float) -> float:
        """The fitted curve."""
        return float(ndtr(self.intercept + self.slope * x))

    def crossing(self, target: float) -> tuple[float, tuple[float, float]]:
        """x at which the curve reaches the target, and its 95 % interval to first order."""
        x = (float(ndtri(target)) - self.intercept) / self.slope
        gradient = np.array([-1.0, -x]) / self.slope
        spread = QUANTILE * float(np.sqrt(gradient @ self.covariance @ gradient))
        return x, (x - spread, x + spread)


def fit_probit(
    x: Sequence[float], accuracy: Sequence[float], queries: Sequence[int], *, slope: tuple[float, float]
) -> ProbitFit:
    """Weighted least squares of the accuracies' normal quantiles on x; one point is enough.

    `slope` is what is expected of it, mean and standard deviation, and counts as one more observation. An accuracy is
    uncertain by the number of its queries and by `SEED_SCATTER`; if the points scatter more around the line than that,
    the covariance grows accordingly. The slope is kept above a tenth of what is expected: accuracy rises with x.
    """
    p, n = np.asarray(accuracy, float), np.asarray(queries, float)
    p = np.clip(p, 0.5 / n, 1 - 0.5 / n)
    z = ndtri(p)
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    weight = density**2 / (p * (1 - p) / n + SEED_SCATTER**2)
    design = np.column_stack([np.ones(len(p)), np.asarray(x, float)])
    precision = design.T @ (weight[:, None] * design) + np.diag([1e-12, slope[1] ** -2])
    covariance = np.linalg.inv(precision)
    best = covariance @ (design.T @ (weight * z) + np.array([0.0, slope[0] * slope[1] ** -2]))
    if best[1] < slope[0] / 10:
        best = np.array([np.average(z - slope[0] / 10 * design[:, 1], weights=weight), slope[0] / 10])
    freedom = len(p) - 1
    excess = float(weight @ (z - design @ best) ** 2) / freedom if freedom else 1.0
    return ProbitFit(float(best[0]), float(best[1]), covariance * max(1.0, excess))


@dataclass
class CapacityQuery:
    """Which field is looked for, in which runs, and for which target."""

    fields: dict[str, Any]  # of a RunSpec, by part, without the unknown
    unknown: str
    target: float

    def __post_init__(self) -> None:
        probability("target", self.target)
        kinds = (
            TASKS.find(self.fields["task"].get("kind") or "mqar"),
            find_architecture(str(self.fields["model"].get("kind") or "linear_mamba")),
        )
        path = path_of(self.unknown, *kinds)
        fields = kinds[1].model_fields
        sizes = [name for name, info in fields.items() if int in (info.annotation, *get_args(info.annotation))]
        known = path == ("task", "num_facts") or (path and path[0] == "model" and path[1] not in {*fields} - {*sizes})
        if path is None or not known:
            raise ValueError(
                f"{self.unknown!r} cannot be looked for. {suggestion(self.unknown, ['num_facts', *sizes])}"
            )
        self.path, self._known = path, dict[int, float]()
        self.sign = 1 if path[0] == "task" else -1  # more facts are harder, a larger model makes it easier

    def run_at(self, value: int) -> RunSpec:
        """The run with the unknown given."""
        part, name = self.path
        return RunSpec.model_validate(self.fields | {part: self.fields[part] | {name: value}})

    @cached_property
    def largest(self) -> int:
        """The largest value that makes a run; a ValidationError if not even 1 does."""
        self.run_at(1)
        good, step = 1, 1
        while good + step < LARGEST and step:
            if self._fits(good + step):
                good, step = good + step, 2 * step
            else:
                step //= 2
        return good

    def _fits(self, value: int) -> bool:
        try:
            self.run_at(value)
        except ValidationError:
            return False
        return True

    @cached_property
    def law(self) -> Law | None:
        """The law of the model, if there is one and it speaks about this task."""
        run = self.run_at(1)
        law = law_of(run.model, run.task.kind, getattr(run.task, "key_tokens", None))
        return law if law and self._by_law(law, 2) else None

    def _by_law(self, law: Law, value: int) -> float | None:
        try:
            p = float(law(Problem.from_fields(flat_fields(self.run_at(value)))))
        except ValueError:  # a task, or sizes, that the law does not speak about
            return None
        return p if p == p else None

    def variable(self, value: int) -> float:
        """What the accuracy is fitted against, rising with recall: the law's quantile, else log n with its sign."""
        if self.law is None:
            return -self.sign * math.log(value)
        if value not in self._known:
            p = self._by_law(self.law, value)
            self._known[value] = float(ndtri(min(max(0.0 if p is None else p, 1e-9), 1 - 1e-9)))
        return self._known[value]

    @property
    def wanted(self) -> str:
        """The answer's name."""
        return f"{'largest' if self.sign > 0 else 'least'} {self.unknown}"

    def guess_rate(self) -> float:
        """Recall by guessing a value."""
        return 2 / self.run_at(1).task.vocab_size


MAX_RUNS = 6
START = 8  # the first value where no law proposes one
LAW_SLOPE = (1.0, 0.25)  # expected of the fit against the law's own variable
LOG_SLOPE = (2.5, 2.5)  # and against log n: the Hebbian law has (sqrt(2 log V) + z) / 2
LARGEST_SIZE = 4096  # of a model's fields
LEVELLED = 0.01  # a law that gains less than this, in standard deviations, has levelled off


@dataclass(frozen=True)
class Tried:
    """One training of the search."""

    value: int
    accuracy: float
    queries: int
    seconds: float
    run: str
    new: bool
    learned: bool = True  # not at chance, where an accuracy says nothing about what the model can hold
    exact: float | None = None  # accuracy with the exact state, where the other is with a stored one

    def __str__(self) -> str:
        return f"{self.accuracy:.4f}" + ("" if self.exact is None else f" (exact state {self.exact:.4f})")


@dataclass(frozen=True)
class Capacity:
    """The answer, or None with its reason; where the fit crosses the target; and what it took."""

    unknown: str
    target: float
    value: int | None
    reason: str
    crossing: float | None = None
    interval: tuple[float | None, float | None] | None = None
    law: str | None = None
    predicted: int | None = None  # by the law alone
    runs: list[Tried] = field(default_factory=list)
    rate: RateSearch | None = None
    grid_runs: int = 0
    grid_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Training time of all values tried, also of those that were found in the store."""
        return sum(tried.seconds for tried in self.runs)

    @property
    def sentences(self) -> list[str]:
        """The answer first, then where the fit crosses the target, the law's own answer, and the learning rate."""
        found = "no answer" if self.value is None else f"{self.unknown} = {self.value}"
        lines = [f"{found}   {self.reason}"]
        if self.crossing is not None and self.interval is not None:
            low, high = self.interval
            lines.append(
                f"recall {self.target:g} at {self.unknown} = {self.crossing:.2f}  (95 %: {low:.2f} to {high:.2f}, "
                f"probit fit against {f'the variable of {self.law}' if self.law else 'log n'})"
            )
        lines += [f"{self.law} alone says {self.predicted}"] if self.law else []
        return [*lines, self.rate.sentence()] if self.rate else lines

    @property
    def effort(self) -> str:
        """How many training runs it took, and how many a grid would take."""
        count = len(self.runs)
        short = f" and {len(self.rate.trials)} short ones" if self.rate else ""
        return (
            f"{count} training{'s' * (count > 1)}{short}, {clock(self.seconds)} of a core; every value up to "
            f"{self.grid_runs} would take {self.grid_runs} training runs, {clock(self.grid_seconds)}"
        )


def find_capacity(
    question: CapacityQuery,
    train: Trainer,
    *,
    max_runs: int = MAX_RUNS,
    search_rates: bool = False,
    easier: bool = True,
    extend: bool = True,
    stored: Callable[[RunRecord], float] | None = None,
) -> Capacity:
    """Propose, train, correct. `search_rates` first chooses a learning rate, by short runs at the first proposal.

    Every accuracy is of one training run; the interval counts the test queries and the scatter between seeds. A value
    that misses the target is trained for twice and four times the steps while it gains from it (`learning`), unless
    `extend` is false; what stays at chance is trained with fewer facts first, unless `easier` is false. A value that
    stays there all the same is no capacity, and the answer says so. `stored` gives the accuracy of a run with its state
    stored in few bits, which then counts; training is judged by the exact state.
    """
    if not 1 <= max_runs <= 1000:
        raise ValueError(f"max_runs={max_runs}: between 1 and 1000 are allowed.")
    if question.target <= question.guess_rate():
        reason = (
            f"guessing among the values gives {question.guess_rate():.4f}, which reaches {question.target:g} already"
        )
        return Capacity(question.unknown, question.target, None, f"{reason}. Use a larger target.")
    search = _Search(question, train, max_runs, easier, extend, stored)
    if search_rates:
        search.choose_rate()
    return search.run()


@dataclass
class _Search:
    """The training runs so far, by m = sign * value, so that recall always falls with m."""

    question: CapacityQuery
    train: Trainer
    max_runs: int
    easier: bool
    extend: bool
    stored: Callable[[RunRecord], float] | None = None
    tried: dict[int, Tried] = field(default_factory=dict)
    specs: dict[int, RunSpec] = field(default_factory=dict)
    why_not: dict[int, str] = field(default_factory=dict)  # of values that stayed at chance
    rate: RateSearch | None = None

    def __post_init__(self) -> None:
        question = self.question
        ends = (1, question.largest if question.sign > 0 else self._most_useful())
        self.low, self.high = ends if question.sign > 0 else (-ends[1], -ends[0])

    def _most_useful(self) -> int:
        """The largest size worth a training: where the law levels off, if there is one."""
        sizes = [2**power for power in range(LARGEST_SIZE.bit_length()) if 2**power <= self.question.largest]
        if self.question.law is None:
            return sizes[-1]
        levels = [self.question.variable(size) for size in sizes]
        return next(size for size, level in zip(sizes, levels, strict=True) if level >= max(levels) - LEVELLED)

    def choose_rate(self) -> None:
        """Short training runs at the first proposal; their rate is used from here on."""
        self.rate = search_rate(self.question.run_at(abs(self.first())), self.train, easier=self.easier)

    def run(self) -> Capacity:
        """Train proposals until the answer is bracketed, or there is none, or the training runs are used up."""
        while len(self.tried) < self.max_runs:
            m = self.proposal()
            if m is None:
                break
            self.measure(m)
        return self.answer()

    def first(self) -> int:
        """Where the search begins: what the law says, else a small number."""
        question = self.question
        if question.law is None:
            return min(max(question.sign * START, self.low), self.high)
        return self.reached(float(ndtri(question.target)))

    def reached(self, level: float) -> int:
        """The hardest m whose variable is at a level or above it; the easiest if none is."""
        low, high = self.low, self.high
        while low < high:
            middle = (low + high + 1) // 2
            enough = self.question.variable(abs(middle)) >= level
            low, high = (middle, high) if enough else (low, middle - 1)
        return low

    def measure(self, m: int) -> None:
        """Train one value."""
        run = self.question.run_at(abs(m))
        if self.rate is not None:
            run = with_train(run, learning_rate=self.rate.chosen, training_facts=self.rate.training_facts)
        learning = learn(
            run, self.train, search=False, easier=self.easier, extend=self.extend, enough=self.question.target
        )
        done, records = learning.best.trainings[0], [stage.records[0] for stage in learning.stages]
        record = done.record
        self.specs[m] = learning.best.run
        self.why_not[m] = why_at_chance(record.model_dump(mode="json"))
        accuracy, exact = record.test_accuracy, None
        if self.stored is not None:
            accuracy, exact = self.stored(record), record.test_accuracy
        self.tried[m] = Tried(
            abs(m), accuracy, max(record.test_queries, 1), sum(one.seconds for one in records), record.run,
            done.new, not self.why_not[m], exact,
        )  # fmt: skip

    @property
    def good(self) -> list[int]:
        """Values that reach the target, and not by naming any value of the context."""
        return [m for m, tried in self.tried.items() if tried.learned and tried.accuracy >= self.question.target]

    @property
    def bad(self) -> list[int]:
        """Values that do not."""
        return [m for m in self.tried if m not in self.good]

    def bracket(self) -> tuple[int, int]:
        """The hardest value that reaches the target below all that do not; and the easiest that does not.

        Beyond the ends of the range where there is none.
        """
        bad = min(self.bad, default=self.high + 1)
        return max((m for m in self.good if m < bad), default=self.low - 1), bad

    def proposal(self) -> int | None:
        """The next value to train; None if there is nothing left to ask."""
        if not self.tried:
            return self.first()
        good, bad = self.bracket()
        if bad - good <= 1:
            return None
        m = self.reached(self.fit.crossing(self.question.target)[0])
        if self.question.law is None:  # the fit is trusted no further than one doubling
            m = min(m, self._doubled(good)) if self.good else m
            m = max(m, self._halved(bad)) if self.bad else m
        return min(max(m, good + 1), bad - 1)

    def _doubled(self, m: int) -> int:
        """Twice as hard."""
        return 2 * m if m > 0 else -(-m // 2)

    def _halved(self, m: int) -> int:
        """Half as hard."""
        return m // 2 if m > 0 else 2 * m

    @property
    def fit(self) -> ProbitFit:
        """Through the runs so far; those with all answers right, or all wrong, only say which side they are on."""
        some = [tried for tried in self.tried.values() if tried.learned]
        points = [tried for tried in some if 3 < tried.accuracy * tried.queries < tried.queries - 3]
        points = points or [self.tried[max(self.good) if self.good else min(self.bad)]]
        return fit_probit(
            [self.question.variable(tried.value) for tried in points],
            [tried.accuracy for tried in points],
            [tried.queries for tried in points],
            slope=LOG_SLOPE if self.question.law is None else LAW_SLOPE,
        )

    def answer(self) -> Capacity:
        """What the training runs say."""
        question, (good, bad) = self.question, self.bracket()
        law = question.law
        predicted = None if law is None else abs(self.first())
        grid = self._grid()
        facts: dict[str, Any] = {
            "law": law.name if law else None, "predicted": predicted, "runs": list(self.tried.values()),
            "rate": self.rate, "grid_runs": grid[0], "grid_seconds": grid[1],
        }  # fmt: skip

        def result(value: int | None, reason: str, **more: Any) -> Capacity:
            return Capacity(question.unknown, question.target, value, reason, **facts, **more)

        if bad in self.tried and not self.tried[bad].learned:
            failed = self.tried[bad]
            held = f"; it recalls {question.unknown}={abs(good)}" if good in self.tried else ""
            return result(
                None,
                f"did not learn under this recipe: {question.unknown}={failed.value} {self.why_not[bad]} That says "
                f"nothing about what it can hold{held}. Use recallscope measure there, which names likely causes, or "
                f"another --learning-rate.",
            )
        if bad <= self.low:
            best = self.tried[bad]
            return result(
                None,
                f"unreachable: even {question.unknown}={best.value} is trained to {best}, below "
                f"{question.target:g}. {'Use a larger model' if question.sign > 0 else 'Use fewer facts'}, or train "
                f"otherwise.",
            )
        if good >= self.high:
            best = self.tried[good]
            more = "more do not fit the task" if question.sign > 0 else "less there is not"
            return result(best.value, f"{question.wanted} there is: trained to {best}; {more}")
        x, (x_low, x_high) = self.fit.crossing(question.target)
        crossing, *ends = (self.real(level) for level in (x, x_low, x_high))
        low, high = sorted(ends)
        where = {"crossing": crossing, "interval": (low, high)}
        if bad - good == 1:
            a, b = self.tried[good], self.tried[bad]
            return result(
                abs(good),
                f"{question.wanted} that reaches {question.target:g}: {a.value} is trained to {a}, {b.value} to {b}",
                **where,
            )
        value = abs(min(max(self.reached(x), good), bad - 1))
        how = "by the fit" if good >= self.low and bad <= self.high else "by the fit beyond what was trained, a guess"
        used = f"{len(self.tried)} training runs were used up before its neighbour was trained"
        if value < 1 or (good < self.low and bad > self.high):
            return result(None, f"{used}. Allow more.", **where)
        return result(value, f"{question.wanted} that reaches {question.target:g}, {how}: {used}", **where)

    def real(self, level: float) -> float:
        """The value between two whole numbers at which the variable is at a level."""
        m = self.reached(level)
        above = self.question.variable(abs(m))
        if m == self.high or above <= level:
            return float(abs(m))
        below = self.question.variable(abs(m + 1))
        return abs(m + (above - level) / (above - below))

    def _grid(self) -> tuple[int, float]:
        """Every value from 1 to the largest that was tried: how many trainings, and how long by those that were."""
        largest = max(tried.value for tried in self.tried.values())
        cost = sum(estimated_cost(run) for run in self.specs.values())
        speed = sum(tried.seconds for tried in self.tried.values()) / cost
        return largest, speed * sum(estimated_cost(self.question.run_at(value)) for value in range(1, largest + 1))
