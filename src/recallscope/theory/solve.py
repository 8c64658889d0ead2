"""Laws read backwards: which D, N, N_f, V or number of layers reaches a wanted recall probability.

The unified laws invert in closed form (Rem 4.3); all others are bracketed and bisected over the integers. An answer
always carries the probability the law really gives there, and "unreachable" is an answer with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from recallscope.specs import LARGEST, find_architecture
from recallscope.theory.law import TRAINED_LAW, Law, find_law
from recallscope.theory.problem import Problem, probability

Unknown = Literal["embed_dim", "state_dim", "num_facts", "vocab_size", "num_layers"]
LARGEST_EMBED = 2**20  # a law that does not reach the target by here has levelled off
LARGEST_WANTED = {"num_facts": "largest num_facts", "vocab_size": "largest even vocab_size"}  # of the others, the least


@dataclass(frozen=True, eq=False)
class SizeQuery(Problem):
    """A Problem that leaves out one size (None), the law that is inverted, and the wanted probability.

    `law` is a Law or the name of one; unless given, the one recommended for trained models, with heads or without.
    """

    law: Any = None
    target: float = 0.99

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.law, Law):
            law = find_law(self.law) if self.law else find_law(TRAINED_LAW).for_pattern(self.head_pattern)
            object.__setattr__(self, "law", law)

    def known(self, size: str) -> int | None:
        """A size as a whole number; None if it is left out."""
        value = getattr(self, size)
        return None if value is None else int(value)

    def evaluate(self, **values: ArrayLike) -> NDArray[np.float64]:
        """The law, with the unknown given, as `predict` has it; 0 where it gives no number with a meaning."""
        with np.errstate(all="ignore"):
            p = np.where(self.law.in_domain(self, **values), self.law(self, **values), 0.0)
        return np.nan_to_num(p, nan=0.0)

    def reaches(self, **values: int) -> bool:
        """Whether these values are enough for the target."""
        return float(self.evaluate(**values)) >= self.target

    def limits(self, **values: int) -> str:
        """Why the law's answer for these values is extrapolated; "" if it is not."""
        limits: str = self.law.limits(self, **values)
        return limits


@dataclass(frozen=True, slots=True)
class Answer:
    """The least (or largest) integer that reaches the target, or None and why there is none."""

    value: int | None
    probability: float | None
    reason: str
    real: float | None = None  # the closed form before rounding, where there is one
    extrapolated: str = ""  # how the answer leaves what the law was compared with; "" if it does not
    unknown: str = ""  # what was found


def solve(question: SizeQuery | None = None, unknown: Unknown | None = None, **known: Any) -> Answer:
    """The least D, N or number of layers, the largest N_f or V, that reaches the target.

    Takes a SizeQuery, or the fields of one as keywords: `solve(vocab_size=512, num_facts=16, embed_dim=64)` finds the
    state dimension for 0.99. The unknown is the size that is left out, unless it is named.

    Paper: Rem 4.3 (`rem:practical-scaling-law`) and Rem 4.4 (`rem:dim-scaling-law`), inverted.
    """
    question = SizeQuery(**known) if question is None else replace(question, **known)
    unknown = unknown or _left_out(question)
    probability("target", question.target)
    for name in get_args(Unknown):
        if (getattr(question, name) is None) != (name == unknown):
            wanted = "must be left out: it is the unknown" if name == unknown else "is needed"
            raise ValueError(f"{name}={question.known(name)} {wanted} when solving for {unknown}.")
    search = _search(question, unknown)
    low, high = search.low, search.high
    unit = {"vocab_size": 2, "embed_dim": int(question.M)}.get(unknown, 1)  # heads split D evenly
    find, edge, far = (_last_true, high, low) if unknown in LARGEST_WANTED else (_first_true, low, high)
    found = find(lambda n: question.reaches(**{unknown: unit * n}), low, high)
    if found is None:
        at_end = unit * far
        p, at = search.best or (0.0 if low > high else float(question.evaluate(**{unknown: at_end})), at_end)
        most = f"p={_show(p, question.target)}"
        return Answer(None, None, f"unreachable: {search.none.format(p=most, at=at)}", unknown=unknown)
    value = unit * found
    wanted = LARGEST_WANTED.get(unknown, f"smallest {unknown}")
    reason = f"{wanted} that reaches {question.target:g}{search.at_edge if found == edge else ''}"
    p = float(question.evaluate(**{unknown: value}))
    return Answer(value, p, reason, closed_form(question, unknown), question.limits(**{unknown: value}), unknown)


def _left_out(question: SizeQuery) -> Unknown:
    """The one size that a question leaves out."""
    missing: list[Unknown] = [name for name in get_args(Unknown) if getattr(question, name) is None]
    if len(missing) != 1:
        what = ", ".join(missing) or "nothing"
        raise ValueError(f"{what} is left to find: leave out exactly one of {', '.join(get_args(Unknown))}.")
    return missing[0]


def closed_form(question: SizeQuery, unknown: Unknown) -> float | None:
    """The exact real solution, for laws that have an `inverse`; None for the others."""
    law, several = question.law, (question.known("num_layers") or 1) > 1
    if law.inverse is None or unknown == "num_layers" or (several and law.layers != "printed"):
        return None
    return law.inverse(question, unknown, question.target, **law.options)


class _Search(NamedTuple):
    """Where an unknown is looked for (a vocabulary by its half), and what is said of the answer."""

    low: int
    high: int
    none: str  # no answer: {p} is the best the law gives, {at} where
    at_edge: str = ""  # the answer is the least (or largest) that was tried
    best: tuple[float, int] | None = None  # the most that was found, and where; else at the end that promises most


def _search(q: SizeQuery, unknown: Unknown) -> _Search:
    """The range of an unknown, and the sentences about its ends."""
    law, short, more = q.law, f"below {q.target:g}", "Use a larger embed_dim or state_dim."
    below = f"{{p}}, {short}"
    match unknown:
        case "state_dim":
            D = int(q.D)
            largest = max(D // int(q.Lambda), 1)
            low, high, best = _scan_states(q, _spread(largest, 256))
            none = (
                f"with embed_dim={D} the law gives at most {{p}} (at state_dim={{at}}), below {q.target:g}; the hash F "
                f"E has rank at most embed_dim, so num_layers x state_dim beyond {D} brings nothing (App. E.1). Use a "
                f"larger embed_dim."
            )
            return _Search(low, high, none, best=best)
        case "embed_dim":
            N = int(q.N * q.Lambda)
            none = (
                f"with state_dim={q.known('state_dim')} the law levels off at {{p}} (embed_dim={{at}}), {short}: key "
                f"noise of order 1/N, or the task's own ceiling, remains. Use a larger state_dim."
            )
            left = "num_layers x state_dim > embed_dim" if N > 1 else "no dimension to keys or values"
            at_rank = f"; a smaller embed_dim would leave {left}"
            M = int(q.M)
            return _Search(max(-(-N // M), -(-2 // M)), LARGEST_EMBED // M, none, at_rank)
        case "num_facts":
            V = int(q.V)
            largest = min(V // 2 - 1, (V - 1) // law.vocab_per_fact)
            if q.length is not None:
                largest = min(largest, int(q.L) // 4)
            none = f"already {{at}} fact(s) give {below}. {more}"
            no_more = f"; more do not fit (vocab_size={V}, length={q.known('length')})"
            return _Search(law.fewest_facts, largest, none, no_more)
        case "vocab_size":
            N_f = int(q.N_f)
            least_half = max(N_f + 1, law.vocab_per_fact * N_f // 2 + 1, 4)
            none = f"even vocab_size={{at}}, the least for {N_f} facts, gives {below}. {more}"
            return _Search(least_half, LARGEST // 2, none, f" (every vocabulary up to {LARGEST} does)")
        case "num_layers":
            D, N = int(q.D), int(q.N)
            none = (
                f"{{at}} layer(s) of state_dim={N} fill the rank of embed_dim={D} and give {below}; more bring nothing "
                f"(Thm 4.6 within rank D). Use a larger embed_dim."
            )
            return _Search(1, max(D // N, 1), none)


def _scan_states(q: SizeQuery, steps: NDArray[np.int64]) -> tuple[int, int, tuple[float, int]]:
    """Ends of the first step that reaches the target, 1 and 0 if none does, and the most that was found.

    Recall need not grow with N (a law may dip), so the steps are taken one after the other, in ever larger batches.
    """
    start, most = 0, (0.0, 1)
    while start < len(steps):
        batch = steps[start : 2 * start + 8]
        p = q.evaluate(state_dim=batch)
        best = int(np.argmax(p))
        most = max(most, (float(p[best]), int(batch[best])), key=lambda found: found[0])
        if p[best] >= q.target:
            first = start + int(np.argmax(p >= q.target))
            return (int(steps[first - 1]) + 1 if first else 1), int(steps[first]), most
        start += len(batch)
    return 1, 0, most


def _spread(largest: int, most: int) -> NDArray[np.int64]:
    """1 to `largest`: all of them up to `most`, else that many geometric steps."""
    if largest <= most:
        return np.arange(1, largest + 1)
    return np.unique(np.geomspace(1, largest, most).round().astype(int))


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """A minimal pair of dimensions and what it costs in one layer."""

    embed_dim: int
    state_dim: int
    probability: float
    state_entries: int  # of a memory that grows, after the whole sequence
    parameters: int | None  # None if only the model could tell, as with heads
    state_bytes: int
    extrapolated: str  # as in an Answer


def frontier(
    question: SizeQuery | None = None, *, model: str = "linear_mamba", max_points: int = 256, **known: Any
) -> list[FrontierPoint]:
    """All minimal (D, N) that reach the target, N <= D: none of them can give up a unit of either.

    Takes a SizeQuery, or the fields of one as keywords. Costs are those of an architecture, by its defaults. Beyond
    `max_points` different N the list is thinned to geometric steps. State bytes are float32.

    Paper: the inverse D-N trade-off of Rem 4.4 (`rem:dim-scaling-law`), Fig. 1 (`fig:scaling-laws-2d-dims`).
    """
    q = SizeQuery(**known) if question is None else replace(question, **known)
    probability("target", q.target)
    unit = int(q.M)  # heads split D evenly
    square = _first_true(lambda d: q.reaches(embed_dim=unit * d, state_dim=unit * d), -(-2 // unit), LARGEST_EMBED)
    if square is None:
        return []
    states = _spread(unit * square, max_points)
    least = -(-np.maximum(states, 2) // unit)  # D in units, from the least that holds N; keys and values need one each
    low, high = least - 1, np.maximum(2 * least, 4)
    reached = np.zeros(len(states), bool)

    def reaches(D: NDArray[np.int64], some: NDArray[np.int64]) -> NDArray[np.bool_]:
        return q.evaluate(embed_dim=unit * D[some], state_dim=states[some]) >= q.target

    active = np.arange(len(states))
    while active.size:  # gallop each N to a D that is enough, or to the end
        reached[active] = reaches(high, active)
        active = active[~reached[active] & (high[active] < LARGEST_EMBED)]
        low[active], high[active] = high[active], np.minimum(2 * high[active], LARGEST_EMBED)
    while (active := np.flatnonzero(reached & (high - low > 1) & (high > least))).size:
        middle = np.maximum((low + high) // 2, least)
        good = reaches(middle, active)
        high[active[good]] = middle[active[good]]
        low[active[~good]] = middle[active[~good]]
    points: list[FrontierPoint] = []
    embeddings = unit * high
    probabilities = q.evaluate(embed_dim=embeddings, state_dim=states)
    costs, best = find_architecture(model), LARGEST
    heads = {"num_heads": unit, "head_pattern": q.head_pattern}
    heads = {name: value for name, value in heads.items() if name in costs.model_fields}
    for N, D, p, ok in zip(states.tolist(), embeddings.tolist(), probabilities.tolist(), reached.tolist(), strict=True):
        if ok and best > D >= N:
            best, spec = D, costs.model_validate({"embed_dim": D, "state_dim": N} | heads)
            entries = spec.state_entries_after(int(q.L)) or D * N
            parameters = None if q.head_pattern else spec.parameter_count(int(q.V))
            limits = q.limits(embed_dim=D, state_dim=N)
            points.append(FrontierPoint(D, N, p, entries, parameters, 4 * entries, limits))
    return points


def _first_true(holds: Callable[[int], bool], low: int, high: int) -> int | None:
    """Least integer in [low, high] where a monotone condition holds: gallop, then bisect."""
    if low > high:
        return None
    step, bad, probe = 1, low - 1, low
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
