"""Laws read backwards: which D, N, N_f, V or number of layers reaches a wanted recall probability.

The unified laws invert in closed form (Rem 4.3); all others are bracketed and bisected over the integers. An answer
always carries the probability the law really gives there, and "unreachable" is an answer with its reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from recallscope.specs import LARGEST
from recallscope.theory.catalogue import Law
from recallscope.theory.extremes import sqrt_two_log, typical_max
from recallscope.theory.inputs import LawTask, probability
from recallscope.theory.noise import noise_coeff

Unknown = Literal["embed_dim", "state_dim", "num_facts", "vocab_size", "num_layers"]
LARGEST_EMBED = 2**20  # a law that does not reach the target by here has levelled off


@dataclass(frozen=True, slots=True)
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

    def evaluate(self, **values: ArrayLike) -> NDArray[np.float64]:
        """The law, with the unknown given."""
        known = {
            name: getattr(self, name)
            for name in ("vocab_size", "num_facts", "embed_dim", "state_dim", "num_layers")
            if getattr(self, name) is not None
        }
        length = self.length if self.task == "mqar" else None
        with np.errstate(all="ignore"):
            p = self.law(task=self.task, length=length, **{**known, **values})
        return np.nan_to_num(np.asarray(p, float), nan=0.0)


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
    for name in ("vocab_size", "num_facts", "embed_dim", "state_dim", "num_layers"):
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
    answer = finder(question)
    real = closed_form(question, unknown) if answer.value is not None else None
    return Answer(answer.value, answer.probability, answer.reason, real)


def closed_form(question: Question, unknown: Unknown) -> float | None:
    """The exact real solution for `unified`, `unified-mv` and their designed and full kin; None for the other laws.

    With x_p = b + Phi^-1(p): N = a N_f x² / (D - x²), D = x² (1 + a N_f / N), N_f = N (D/x² - 1) / a.
    """
    q = question
    levels = {"unified": sqrt_two_log, "unified-mv": typical_max}
    family = next((kin for kin in ("unified-mv", "unified") if q.law.name.endswith(kin)), None)
    layers = q.num_layers or 1
    if family is None or (layers > 1 and q.law.layers != "printed") or unknown == "num_layers":
        return None
    weights: Literal["designed", "trained"] = "designed" if q.law.weights == "designed" else "trained"
    scale = 0.5 if q.law.weights == "full" else 1.0

    def a(N_f: float) -> float:
        L = 4 * N_f if q.length is None else float(q.length)
        return scale * float(noise_coeff(np.asarray(N_f), np.asarray(L), task=q.task, weights=weights))

    z = float(ndtri(q.target))
    D, N = float(q.embed_dim or 0), float((q.state_dim or 0) * layers)
    if unknown == "vocab_size":
        N_f = float(q.num_facts or 0)
        b = np.sqrt(N * D / (a(N_f) * N_f + N)) - z
        if family == "unified":
            return float(np.exp(b**2 / 2)) if b > 0 else None
        return _bisect_real(lambda V: b - typical_max(V), 8.0, 1e300)
    x2 = (float(levels[family](q.vocab_size or 2)) + z) ** 2
    if unknown == "num_facts":
        if q.length is not None and q.task == "mqar":
            # a N_f is affine in N_f when L is fixed: 3/4 N_f + L/8 (trained), N_f + L/2 (designed)
            slope, rest = (0.75, q.length / 8) if weights == "trained" else (1.0, q.length / 2)
            return (N * (D / x2 - 1) / scale - rest) / slope
        return N * (D / x2 - 1) / a(1.0)
    N_f = float(q.num_facts or 0)
    if unknown == "embed_dim":
        return x2 * (1 + a(N_f) * N_f / N)
    return a(N_f) * N_f * x2 / (D - x2) / layers if x2 < D else None


def _bisect_real(sign: Callable[[float], NDArray[np.float64]], low: float, high: float) -> float | None:
    if sign(low) < 0 or sign(high) > 0:
        return None
    for _ in range(200):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if sign(middle) > 0 else (low, middle)
    return high


def _least_state(q: Question) -> Answer:
    D, layers = int(q.embed_dim or 0), int(q.num_layers or 1)
    largest = max(D // layers, 1)
    why = f"the hash F E has rank at most embed_dim, so num_layers x state_dim beyond {D} brings nothing (App. E.1)"
    candidates = np.arange(1, largest + 1)
    if q.law.monotone_in_state:
        value = _first_true(lambda N: float(q.evaluate(state_dim=N)) >= q.target, 1, largest)
    else:
        if largest > 256:
            candidates = np.unique(np.geomspace(1, largest, 256).round().astype(int))
        reached = q.evaluate(state_dim=candidates) >= q.target
        if not reached.any():
            value = None
        else:
            first = int(np.argmax(reached))
            low = int(candidates[first - 1]) + 1 if first else 1
            value = _first_true(lambda N: float(q.evaluate(state_dim=N)) >= q.target, low, int(candidates[first]))
    if value is not None:
        return Answer(value, float(q.evaluate(state_dim=value)), f"least state_dim that reaches {q.target:g}")
    some = candidates if len(candidates) <= 256 else np.unique(np.geomspace(1, largest, 64).round().astype(int))
    values = q.evaluate(state_dim=some)
    best = int(np.argmax(values))
    return Answer(
        None,
        None,
        f"unreachable: with embed_dim={D} the law gives at most p={_show(float(values[best]), q.target)} "
        f"(at state_dim={int(some[best])}), below {q.target:g}; {why}. Use a larger embed_dim.",
    )


def _least_embed(q: Question) -> Answer:
    N = int(q.state_dim or 0) * int(q.num_layers or 1)
    value = _first_true(lambda D: float(q.evaluate(embed_dim=D)) >= q.target, max(N, 2), LARGEST_EMBED)
    if value is not None:
        at_rank = value == max(N, 2)
        note = "; a smaller embed_dim would leave num_layers x state_dim > embed_dim" if at_rank and N > 1 else ""
        return Answer(value, float(q.evaluate(embed_dim=value)), f"least embed_dim that reaches {q.target:g}{note}")
    p = float(q.evaluate(embed_dim=LARGEST_EMBED))
    return Answer(
        None,
        None,
        f"unreachable: with state_dim={q.state_dim} the law levels off at p={_show(p, q.target)} "
        f"(embed_dim={LARGEST_EMBED}), below "
        f"{q.target:g}: key noise of order 1/N, or the task's own ceiling, remains. Use a larger state_dim.",
    )


def _most_facts(q: Question) -> Answer:
    V = int(q.vocab_size or 0)
    largest = V // 2 - 1
    if q.length is not None and q.task == "mqar":
        largest = min(largest, q.length // 4)
    if q.law.name.startswith("designed-improved") or q.law.name.startswith("designed-lite"):
        largest = min(largest, (V - 1) // 4)
    fewest = q.law.fewest_facts
    value = _last_true(lambda n: float(q.evaluate(num_facts=n)) >= q.target, fewest, largest)
    if value is None:
        p = float(q.evaluate(num_facts=fewest)) if largest >= fewest else 0.0
        return Answer(
            None,
            None,
            f"unreachable: already {fewest} fact(s) give p={_show(p, q.target)}, below {q.target:g}. "
            f"Use a larger embed_dim or state_dim.",
        )
    note = f"; more do not fit (vocab_size={V}, length={q.length})" if value == largest else ""
    return Answer(value, float(q.evaluate(num_facts=value)), f"largest num_facts that reaches {q.target:g}{note}")


def _largest_vocab(q: Question) -> Answer:
    N_f = int(q.num_facts or 0)
    least_half = max(N_f + 1, 2 * N_f + 1 if q.law.weights == "designed" else 4)
    half = _last_true(lambda h: float(q.evaluate(vocab_size=2 * h)) >= q.target, least_half, LARGEST // 2)
    if half is None:
        p = float(q.evaluate(vocab_size=2 * least_half))
        return Answer(
            None,
            None,
            f"unreachable: even vocab_size={2 * least_half}, the least for {N_f} facts, gives "
            f"p={_show(p, q.target)}, below {q.target:g}. "
            f"Use a larger embed_dim or state_dim.",
        )
    note = f" (every vocabulary up to {LARGEST} does)" if half == LARGEST // 2 else ""
    return Answer(
        2 * half,
        float(q.evaluate(vocab_size=2 * half)),
        f"largest even vocab_size that reaches {q.target:g}{note}",
    )


def _least_layers(q: Question) -> Answer:
    D, N = int(q.embed_dim or 0), int(q.state_dim or 0)
    largest = max(D // N, 1)
    value = _first_true(lambda layers: float(q.evaluate(num_layers=layers)) >= q.target, 1, largest)
    if value is not None:
        return Answer(value, float(q.evaluate(num_layers=value)), f"least num_layers that reaches {q.target:g}")
    p = float(q.evaluate(num_layers=largest))
    return Answer(
        None,
        None,
        f"unreachable: {largest} layer(s) of state_dim={N} fill the rank of embed_dim={D} and give "
        f"p={_show(p, q.target)}, below "
        f"{q.target:g}; more bring nothing (Thm 4.6 within rank D). Use a larger embed_dim.",
    )


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
    square = _first_true(lambda d: float(q.evaluate(embed_dim=d, state_dim=d)) >= q.target, 2, LARGEST_EMBED)
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
    V = int(q.vocab_size or 0)
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
