"""Laws read backwards: which D, N, N_f, V or number of layers reaches a wanted recall probability.

The unified laws invert in closed form (Rem 4.3); all others are bracketed and bisected over the integers. An answer
always carries the probability the law really gives there, and "unreachable" is an answer with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recallscope.specs import LARGEST
from recallscope.theory.law import Law
from recallscope.theory.problem import LawTask, Problem, probability

Unknown = Literal["embed_dim", "state_dim", "num_facts", "vocab_size", "num_layers"]
LARGEST_EMBED = 2**20  # a law that does not reach the target by here has levelled off
WANTED = {  # what is looked for, in the words of the answer
    "embed_dim": "least embed_dim",
    "state_dim": "least state_dim",
    "num_facts": "largest num_facts",
    "vocab_size": "largest even vocab_size",
    "num_layers": "least num_layers",
}


@dataclass(frozen=True)
class Question:
    """What is known: the law's arguments but one (None), and the wanted probability."""

    law: Law
    target: float
    task: LawTask = "mqar"
    vocab_size: int | None = None
    num_facts: int | None = None
    embed_dim: int | None = None
    state_dim: int | None = None
    num_layers: int | None = 1
    length: int | None = None

    @cached_property
    def problem(self) -> Problem:
        """What is known, as a Problem."""
        return Problem.from_words(vars(self))

    def evaluate(self, **values: ArrayLike) -> NDArray[np.float64]:
        """The law, with the unknown given; 0 where it gives no number."""
        with np.errstate(all="ignore"):
            p = self.law(self.problem, **values)
        return np.nan_to_num(np.asarray(p, float), nan=0.0)

    def reaches(self, **values: int) -> bool:
        """Whether these values are enough for the target."""
        return float(self.evaluate(**values)) >= self.target


@dataclass(frozen=True, slots=True)
class Answer:
    """The least (or largest) integer that reaches the target, or None and why there is none."""

    value: int | None
    probability: float | None
    reason: str
    real: float | None = None  # the closed form before rounding, where there is one


def solve(question: Question, unknown: Unknown) -> Answer:
    """The least D, N or number of layers, the largest N_f or V, that reaches the target.

    Paper: Rem 4.3 (`rem:practical-scaling-law`) and Rem 4.4 (`rem:dim-scaling-law`), inverted.
    """
    probability("target", question.target)
    for name in get_args(Unknown):
        if (getattr(question, name) is None) != (name == unknown):
            wanted = "must be left out: it is the unknown" if name == unknown else "is needed"
            raise ValueError(f"{name}={getattr(question, name)} {wanted} when solving for {unknown}.")
    finder = {
        "embed_dim": _least_embed,
        "state_dim": _least_state,
        "num_facts": _most_facts,
        "vocab_size": _largest_vocab,
        "num_layers": _least_layers,
    }[unknown]
    value, remark = finder(question)
    if value is None:
        return Answer(None, None, f"unreachable: {remark}")
    p = float(question.evaluate(**{unknown: value}))
    reason = f"{WANTED[unknown]} that reaches {question.target:g}{remark}"
    return Answer(value, p, reason, closed_form(question, unknown))


def closed_form(question: Question, unknown: Unknown) -> float | None:
    """The exact real solution, for laws that have an `inverse`; None for the others."""
    law, several = question.law, (question.num_layers or 1) > 1
    if law.inverse is None or unknown == "num_layers" or (several and law.layers != "printed"):
        return None
    return law.inverse(question.problem, unknown, question.target, **law.options)


Found = tuple[int | None, str]
"""The value and a remark on it; or None and why there is none."""


def _least_state(q: Question) -> Found:
    D = int(q.problem.D)
    largest = max(D // int(q.problem.Lambda), 1)
    low, high = 1, largest
    if not q.law.monotone_in_state:  # find a bracket first
        steps = _spread(largest, 256)
        reached = q.evaluate(state_dim=steps) >= q.target
        first = int(np.argmax(reached))
        low = int(steps[first - 1]) + 1 if first else 1
        high = int(steps[first]) if reached.any() else 0
    value = _first_true(lambda N: q.reaches(state_dim=N), low, high)
    if value is not None:
        return value, ""
    some = _spread(largest, 256, 64 if q.law.monotone_in_state else 256)
    values = q.evaluate(state_dim=some)
    best = int(np.argmax(values))
    return None, (
        f"with embed_dim={D} the law gives at most p={_show(float(values[best]), q.target)} "
        f"(at state_dim={int(some[best])}), below {q.target:g}; the hash F E has rank at most embed_dim, so "
        f"num_layers x state_dim beyond {D} brings nothing (App. E.1). Use a larger embed_dim."
    )


def _least_embed(q: Question) -> Found:
    N = int(q.problem.N * q.problem.Lambda)
    least = max(N, 2)
    value = _first_true(lambda D: q.reaches(embed_dim=D), least, LARGEST_EMBED)
    if value is not None:
        at_rank = value == least and N > 1
        return value, "; a smaller embed_dim would leave num_layers x state_dim > embed_dim" if at_rank else ""
    p = float(q.evaluate(embed_dim=LARGEST_EMBED))
    return None, (
        f"with state_dim={q.state_dim} the law levels off at p={_show(p, q.target)} (embed_dim={LARGEST_EMBED}), below "
        f"{q.target:g}: key noise of order 1/N, or the task's own ceiling, remains. Use a larger state_dim."
    )


def _most_facts(q: Question) -> Found:
    V, fewest = int(q.problem.V), q.law.fewest_facts
    largest = min(V // 2 - 1, (V - 1) // q.law.vocab_per_fact)
    if q.problem.length is not None:
        largest = min(largest, int(q.problem.L) // 4)
    value = _last_true(lambda n: q.reaches(num_facts=n), fewest, largest)
    if value is not None:
        return value, f"; more do not fit (vocab_size={V}, length={q.length})" if value == largest else ""
    p = float(q.evaluate(num_facts=fewest)) if largest >= fewest else 0.0
    return None, (
        f"already {fewest} fact(s) give p={_show(p, q.target)}, below {q.target:g}. "
        f"Use a larger embed_dim or state_dim."
    )


def _largest_vocab(q: Question) -> Found:
    N_f = int(q.problem.N_f)
    least_half = max(N_f + 1, q.law.vocab_per_fact * N_f // 2 + 1, 4)
    half = _last_true(lambda h: q.reaches(vocab_size=2 * h), least_half, LARGEST // 2)
    if half is not None:
        return 2 * half, f" (every vocabulary up to {LARGEST} does)" if half == LARGEST // 2 else ""
    p = float(q.evaluate(vocab_size=2 * least_half))
    return None, (
        f"even vocab_size={2 * least_half}, the least for {N_f} facts, gives p={_show(p, q.target)}, below "
        f"{q.target:g}. Use a larger embed_dim or state_dim."
    )


def _least_layers(q: Question) -> Found:
    D, N = int(q.problem.D), int(q.problem.N)
    largest = max(D // N, 1)
    value = _first_true(lambda layers: q.reaches(num_layers=layers), 1, largest)
    if value is not None:
        return value, ""
    p = float(q.evaluate(num_layers=largest))
    return None, (
        f"{largest} layer(s) of state_dim={N} fill the rank of embed_dim={D} and give p={_show(p, q.target)}, below "
        f"{q.target:g}; more bring nothing (Thm 4.6 within rank D). Use a larger embed_dim."
    )


def _spread(largest: int, most: int, thinned: int | None = None) -> NDArray[np.int64]:
    """1 to `largest`: all of them up to `most`, else geometric steps, `thinned` of them."""
    if largest <= most:
        return np.arange(1, largest + 1)
    return np.unique(np.geomspace(1, largest, thinned or most).round().astype(int))


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A minimal pair of dimensions and what it costs for one linear layer with expand = 2."""

    embed_dim: int
    state_dim: int
    probability: float
    state_entries: int
    parameters: int
    state_bytes: int


def frontier(question: Question, *, expand: int = 2, conv_width: int = 2, max_points: int = 256) -> list[FrontierPoint]:
    """All minimal (D, N) that reach the target, N <= D: none of them can give up a unit of either.

    Beyond `max_points` different N the list is thinned to geometric steps. State bytes are float32.

    Paper: the inverse D-N trade-off of Rem 4.4 (`rem:dim-scaling-law`), Fig. 1 (`fig:scaling-laws-2d-dims`).
    """
    q = question
    probability("target", q.target)
    square = _first_true(lambda d: q.reaches(embed_dim=d, state_dim=d), 2, LARGEST_EMBED)
    if square is None:
        return []
    states = np.arange(1, square + 1)
    if len(states) > max_points:
        states = np.unique(np.geomspace(1, square, max_points).round().astype(int))
    low, high = states - 1, np.maximum(2 * states, 4)
    reached = np.zeros(len(states), bool)

    def reaches(D: NDArray[np.int64], some: NDArray[np.int64]) -> NDArray[np.bool_]:
        return q.evaluate(embed_dim=D[some], state_dim=states[some]) >= q.target

    active = np.arange(len(states))
    while active.size:  # gallop each N to a D that is enough, or to the end
        reached[active] = reaches(high, active)
        active = active[~reached[active] & (high[active] < LARGEST_EMBED)]
        low[active], high[active] = high[active], np.minimum(2 * high[active], LARGEST_EMBED)
    while (active := np.flatnonzero(reached & (high - low > 1) & (high > states))).size:
        middle = np.maximum((low + high) // 2, states)
        good = reaches(middle, active)
        high[active[good]] = middle[active[good]]
        low[active[~good]] = middle[active[~good]]
    points: list[FrontierPoint] = []
    probabilities = q.evaluate(embed_dim=high, state_dim=states)
    V = int(q.problem.V)
    best = LARGEST
    for N, D, p, ok in zip(states.tolist(), high.tolist(), probabilities.tolist(), reached.tolist(), strict=True):
        if ok and best > D >= N:
            best = D
            inner = expand * D
            parameters = V * D + 2 * inner * D + inner * conv_width + 2 * N * inner
            points.append(FrontierPoint(D, N, p, inner * N, parameters, 4 * inner * N))
    return points


def _first_true(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """Least integer in [low, high] where a monotone condition holds: gallop, then bisect."""
    if low > high:
        return None
    step, bad = 1, low - 1
    probe = low
    while not holds(probe):
        if probe == high:
            return None
        bad, probe, step = probe, min(probe + step, high), 2 * step
    good = probe
    while good - bad > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if holds(middle) else (good, middle)
    return good


def _last_true(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """Largest integer in [low, high] where a condition that only turns false holds."""
    if low > high or not holds(low):
        return None
    failing = _first_true(lambda n: not holds(n), low, high)
    return high if failing is None else failing - 1


def _show(p: float, target: float) -> str:
    """Enough digits to be seen below the target."""
    for digits in range(3, 12):
        text = f"{p:.{digits}f}"
        if float(text) < target:
            return text
    return repr(p)
