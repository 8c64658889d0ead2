"""The paper's laws for trained models, each in its printed form and, where that cannot be followed, as it was meant.

All return probabilities. x = 1/sigma is the signal-to-noise ratio of a logit, sigma² = (a N_f + N) / (N D); b is the
level of the largest of V noise logits: sqrt(2 log V) in print, m_V in the released code. The same functions serve the
designed weights and, with half the noise, the full model (`laws/designed.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from recallscope.theory.domain import TRAINED
from recallscope.theory.extremes import sqrt_two_log, typical_max
from recallscope.theory.law import Law
from recallscope.theory.problem import Array, LawTask, Problem, takes_fields
from recallscope.theory.quadrature import slot_rule

Level = Literal["sqrt", "mv"]
Weights = Literal["designed", "trained"]
SUMMED, FIRST, NODES = 512, 64, 12  # terms: of a sum without quadrature; of its first block; nodes of each other block
ALL_SIZES = "V >> 1, N_f >> N, D"
NEAR_SQUARE = "N of the order of D, moderate x"
PHI_OF_X = "Phi(sqrt(N D / (a N_f + N))"  # how the summaries of the unified laws begin


def noise_coeff(num_facts: ArrayLike, length: ArrayLike, *, task: LawTask, weights: Weights) -> Array:
    """a(task, weights, L): 2 and 3 for designed weights, 1 and 5/4 for trained ones, at AR and at MQAR with L = 4 N_f.

    Paper: Rem 4.3 (`rem:practical-scaling-law`, `app-rem:practical-scaling-law`).
    Departs: the print gives MQAR for L = 4 N_f only. Its own argument, the noise at the mean query position
        <t> = N_f + L/2, gives 1 + L / (2 N_f) and 3/4 + L / (8 N_f) for any L.
    """
    N_f, L = np.asarray(num_facts, float), np.asarray(length, float)
    if task == "ar":
        return np.full(np.broadcast(N_f, L).shape, 2.0 if weights == "designed" else 1.0)
    return 1 + L / (2 * N_f) if weights == "designed" else 0.75 + L / (8 * N_f)


def refined_denominator(num_facts: ArrayLike, state_dim: ArrayLike, length: ArrayLike, *, weights: Weights) -> Array:
    """a N_f + N for MQAR with the mean over query positions taken as an integral, not at its midpoint.

    Paper: proof of Rem 4.3 (`app-rem:practical-scaling-law`).
    Departs: for trained weights (sqrt(6 N_f + 4 N) + sqrt(4 N_f + 4 N))² / 16 expands to
        5/8 N_f + N/2 + sqrt(2)/4 sqrt((3 N_f + 2 N)(N_f + N)); the print has 5/4 N_f + N + 1/4 sqrt(...), which is
        37.80 instead of 27.86 at N_f = 16, N = 8. So the refinement lowers a, to between 1.2374 and 1.25.
    """
    N_f, N, L = (np.asarray(a, float) for a in (num_facts, state_dim, length))
    if weights == "designed":
        return (np.sqrt(L + N) + np.sqrt(2 * N_f + N)) ** 2 / 4
    return (np.sqrt(L + 2 * N_f + 4 * N) + np.sqrt(4 * N_f + 4 * N)) ** 2 / 16


@takes_fields
def inv_sigma(
    problem: Problem, *, a: ArrayLike | None = None, weights: Weights = "trained", noise_scale: float = 1.0
) -> Array:
    """x = sqrt(N D / (a N_f + N)), the one variable onto which recall collapses; N counts all layers (Thm 4.6).

    `a` is that of task and weights unless given.

    Paper: Rem 4.3 (`rem:practical-scaling-law`), Fig. 4 (`fig:scaling-laws-1d-dims`).
    """
    if a is None:
        a = noise_scale * noise_coeff(problem.N_f, problem.L, task=problem.task, weights=weights)
    N = problem.Lambda * problem.N
    return np.sqrt(N * problem.D / (np.asarray(a) * problem.N_f + N))


def above_the_rest(x: Array, vocab_size: Array, level: Level) -> Array:
    """The chance that a logit of signal-to-noise x tops V - 1 others, with their maximum at sqrt(2 log V) or at m_V."""
    return np.asarray(ndtr(x - (sqrt_two_log if level == "sqrt" else typical_max)(vocab_size)))


def unified_inverse(
    problem: Problem,
    unknown: str,
    target: float,
    *,
    level: Level = "sqrt",
    weights: Weights = "trained",
    noise_scale: float = 1.0,
) -> float | None:
    """The exact real solution of `unified_law` = p for one unknown size; None where there is none.

    With x_p = b + Phi^-1(p): N = a N_f x² / (D - x²), D = x² (1 + a N_f / N), N_f = N (D/x² - 1) / a.

    Paper: Rem 4.3 (`rem:practical-scaling-law`), inverted.
    """

    def noise(N_f: float, L: float) -> float:  # a N_f
        return noise_scale * float(noise_coeff(N_f, L, task=problem.task, weights=weights)) * N_f

    z, layers = float(ndtri(target)), float(problem.Lambda)
    if unknown == "vocab_size":
        b = float(inv_sigma(problem, weights=weights, noise_scale=noise_scale)) - z
        if level == "sqrt":
            return float(np.exp(b**2 / 2)) if b > 0 else None
        return _bisect_real(lambda V: b - float(typical_max(V)), 8.0, 1e300)
    x2 = (float((sqrt_two_log if level == "sqrt" else typical_max)(problem.V)) + z) ** 2
    if unknown == "num_facts":
        facts = layers * float(problem.N) * (float(problem.D) / x2 - 1)  # a N_f
        if problem.length is None:
            return facts / noise(1.0, 4.0)
        # a N_f is affine in N_f when L is fixed: 3/4 N_f + L/8 (trained), N_f + L/2 (designed)
        slope, rest = (0.75, problem.L / 8) if weights == "trained" else (1.0, problem.L / 2)
        return (facts / noise_scale - float(rest)) / slope
    a_N_f = noise(float(problem.N_f), float(problem.L))
    if unknown == "embed_dim":
        return x2 * (1 + a_N_f / (layers * float(problem.N)))
    if unknown == "state_dim":
        D = float(problem.D)
        return a_N_f * x2 / (D - x2) / layers if x2 < D else None
    return None


def _bisect_real(sign: Callable[[float], float], low: float, high: float) -> float | None:
    if sign(low) < 0 or sign(high) > 0:
        return None
    for _ in range(200):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if sign(middle) > 0 else (low, middle)
    return high


@takes_fields
def unified_law(
    problem: Problem,
    *,
    weights: Weights = "trained",
    level: Level = "sqrt",
    noise_scale: float = 1.0,
    refined: bool = False,
) -> Array:
    """Phi(x - b), x = sqrt(N D / (a N_f + N)), with a for task and weights.

    `noise_scale` = 1/2 is the paper's guess for full Mamba.

    Paper: Rem 4.3 (`rem:practical-scaling-law`, `app-eq:practical-success-prob`).   Holds for: N ~ D and moderate x.
    Departs: the self-noise term N (1/D of the variance) is not independent of the signal, so the ceiling
        p <= Phi(sqrt(D) - b) it implies is an artefact; and a 1/N term of the wrong facts is dropped, which matters
        for N << D.
    """
    if refined and problem.task == "mqar":
        denominator = refined_denominator(problem.N_f, problem.N, problem.L, weights=weights)
        return above_the_rest(np.sqrt(problem.N * problem.D / denominator), problem.V, level)
    return above_the_rest(inv_sigma(problem, weights=weights, noise_scale=noise_scale), problem.V, level)


@takes_fields
def large_context_law(
    problem: Problem, *, weights: Weights = "trained", level: Level = "sqrt", printed: bool = False
) -> Array:
    """Mean over queries of Phi(sqrt(N D / n(t)) - b), n(t) noise pairs: N_f/2 + t/4 for trained weights, else t.

    Paper: Thm 4.2, Eq. 15 (`thm:prob-scaling-law`, `eq:success-prob-ar-large-Nf`) and Thm F.2
        (`app-thm:designed-scaling-law`).   Holds for: N_f >> N, D and V >> 1.
    Departs: we average over the query slots t = 2 N_f + 2 g. As printed (`printed=True`) the sum over t = 2 N_f .. L
        has one term more than its divisor and tends to 33/32 for L = 64, N_f = 16: it is not a probability.
    """

    def at(t: Array, cell: Problem) -> Array:
        pairs = t if weights == "designed" else cell.N_f / 2 + t / 4
        return above_the_rest(np.sqrt(cell.N * cell.D / pairs), cell.V, level)

    return mean_over_queries(problem, at, printed=printed)


def mean_over_queries(problem: Problem, at: Callable[[Array, Problem], Array], *, printed: bool = False) -> Array:
    """Mean of at(t) over the query slots t = 2 N_f, 2 N_f + 2, ... below L; one sum per distinct (N_f, L).

    `printed`: the sum over every t = 2 N_f .. L, divided by L - 2 N_f. Long sums are taken by quadrature (`_terms`).
    """
    if problem.task == "ar":
        return at(2 * problem.N_f, problem)
    result = np.empty(problem.shape)
    for N_f, L in np.unique(np.stack([problem.N_f.ravel(), problem.L.ravel()]), axis=1).T:
        here = (problem.N_f == N_f) & (problem.L == L)
        cell = problem.take(here)
        step, count = (1, int(L - 2 * N_f) + 1) if printed else (2, int(cell.G.flat[0]))
        total = np.zeros(cell.shape)
        for k, weight in _terms(count):
            total += weight * at(np.full(cell.shape, 2 * N_f + step * k), cell)
        result[here] = total / (L - 2 * N_f if printed else cell.G)
    return result


def _terms(count: int) -> Iterator[tuple[float, float]]:
    """Places 0 .. count - 1 of a sum and their weights: each by itself up to SUMMED, few of them in longer sums.

    Those are cut into blocks, each twice as long as the one before, with a Gauss rule in each: laws change with the
    logarithm of the place. Good to 1e-6 of the mean.
    """
    low = count if count <= SUMMED else FIRST
    yield from ((float(k), 1.0) for k in range(low))
    while low < count:
        size = min(low, count - low)
        for node, weight in zip(*slot_rule(size, NODES), strict=True):
            yield low + float(node), size * float(weight)
        low += size


_PRINTED: Any = {"compared": TRAINED, "layers": "printed", "status": "approximate"}
LAWS = [
    Law(
        "unified-mv",
        unified_law,
        summary=f"{PHI_OF_X} - m_V), a = 1 | 5/4: what the authors' code evaluates",
        reference="Rem 4.3, app-eq:m-V",
        holds=NEAR_SQUARE,
        options={"level": "mv"},
        inverse=unified_inverse,
        **_PRINTED,
    ),
    Law(
        "unified",
        unified_law,
        summary=f"{PHI_OF_X} - sqrt(2 log V)), a = 1 | 5/4, as printed",
        reference="Rem 4.3, Thm 4.6",
        holds=NEAR_SQUARE,
        inverse=unified_inverse,
        **_PRINTED,
    ),
    Law(
        "unified-refined",
        unified_law,
        summary="unified with the refined denominator",
        reference="proof of Rem 4.3",
        holds=NEAR_SQUARE,
        options={"refined": True},
        **_PRINTED,
    ),
    Law(
        "trained",
        large_context_law,
        summary="mean over query slots of Phi(sqrt(N D / (N_f/2 + t/4)) - sqrt(2 log V))",
        reference="Thm 4.2, Eq. 15",
        holds=ALL_SIZES,
        **_PRINTED,
    ),
    Law(
        "trained-printed",
        large_context_law,
        summary="the sum as printed, one term too many: may exceed 1",
        reference="Thm 4.2, Eq. 15",
        holds=ALL_SIZES,
        options={"printed": True},
        **_PRINTED,
    ),
]
