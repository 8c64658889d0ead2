"""Laws of the designed weights of App. E.1: ours from their exact geometry, and the paper's.

The list also has the paper's guess for trained full Mamba: the laws of the linear model with half the noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_ndtr

from recallscope.theory.domain import FULL, MONTE_CARLO, Domain
from recallscope.theory.law import Law
from recallscope.theory.laws import contest as geometry
from recallscope.theory.laws.contest import SATURATED, Contest, check_keys, top_probability
from recallscope.theory.laws.paper import (
    ALL_SIZES,
    NEAR_SQUARE,
    PHI_OF_X,
    large_context_law,
    mean_over_queries,
    unified_inverse,
    unified_law,
)
from recallscope.theory.problem import Array, Problem, takes_fields
from recallscope.theory.quadrature import slot_rule


@takes_fields
def designed_improved_law(problem: Problem) -> Array:
    """Mean chance that the designed model answers a query rightly; nan where N > D, which cannot be designed.

    Paper: weights of App. E.1 (`app-subsec:designed-weights`); takes the place of Thm F.2
        (`app-thm:designed-scaling-law`) and of Eq. label `eq:p-succ-exact`.
    Holds for: random filler, spherical E, N <= D, D >= 8. Against Monte Carlo on the paper's three regimes the mean
        error is .004 and the largest .015, with a bias of -.004; for N_f <= 3 it grows to .02. Below D = 8 recall is
        a few times chance and the law falls short of it (by up to .005 for N_f = 16, .05 for N_f = 4, .08 for N_f = 2).
        L > 4 N_f is checked to .015 up to L = 2 V, and refused beyond.
    Departs: logits of tokens are not independent given the right one (they share u), nor are they Gaussian; the
        self-noise 1/D scales with the signal and sets no ceiling; competitors are all tokens on the value side, not
        N_f - 1; Var(A) = 2 (D - N) / (N (D + 2)), twice the printed one; the mean is over query slots. A filler token
        that equals the queried key makes a second fact of it, so MQAR stays below 1 however large the model is.
    """
    check_keys(problem)
    V, N_f, D, N, L, G = (a.ravel() for a in (problem.V, problem.N_f, problem.D, problem.N, problem.L, problem.G))
    if np.any(L > 2 * V):
        raise ValueError(
            f"length={np.max(L):g} is more than twice some vocab_size: random filler then rewrites the facts more "
            f"often than this law was checked for. Use length <= 2 vocab_size = {np.min(2 * V):g}."
        )
    result = np.where(N > D, np.nan, 1 / V)  # a line (D < 2) only guesses
    real = np.flatnonzero((N <= D) & (D >= 2))
    if real.size:
        V, N_f, D, N, G = (a[real][:, None] for a in (V, N_f, D, N, G))
        g, slot_weight = slot_rule(G[:, 0], 1 if problem.task == "ar" else geometry.NODES.slots)
        filler, contest = designed_contest(V, N_f, D, N, G, g)
        flat = Contest(*(np.broadcast_to(a, g.shape).ravel() for a in contest))
        p = top_probability(flat).reshape(g.shape)
        # k filler tokens equal to the queried key make k more right answers: E (1 - (1-p)^(k+1)) / (k+1), k binomial
        p = -np.expm1((filler + 1) * np.log1p(-p / V)) * V / (filler + 1)
        result[real] = np.clip((slot_weight * p).sum(-1), 1 / V[:, 0], 1)
    return result.reshape(problem.shape)


def designed_contest(V: Array, N_f: Array, D: Array, N: Array, G: Array, g: Array) -> tuple[Array, Contest]:
    """Expected counts of everything in the state when the query of slot g is read; and the number of filler tokens.

    The state then holds 2 N_f + 2 g pairs, one of them the right fact. Of the g slots before, a share
    (N_f - 1) / (G - 1) holds queries, the rest and all odd positions hold filler.
    """
    n = 2 * N_f - 1 + 2 * g
    D = np.maximum(np.minimum(D, SATURATED * n), N)
    asked = g * (N_f - 1) / np.maximum(G - 1, 1)  # earlier queries
    filler = 2 * g - asked
    on_value_side = asked + 1  # keys that stand there as a query, this one included
    key_twice = on_value_side * (N_f - 1) / N_f  # all but the first key stand there in the context, too
    key_once = (N_f - 1) * (1 - on_value_side / N_f) + on_value_side / N_f
    # filler equal to a token of the facts or to other filler, to first order in filler/V; where that is not small it
    # counts too many tokens as standing twice, which about makes up for the noise of repeated keys, left out here
    hits = filler * (2 * N_f + np.maximum(filler - 1, 0) / 2) / V
    once = np.maximum(N_f - 1 + key_once + filler - 2 * hits, 0)
    twice = key_twice + hits
    # squares of sphere coordinates; an asked key weighs two pairs at once, a token standing twice adds a cross term
    spread = (2 * (D - 1) / (D + 2) * (n + 2 * asked) + 4 * key_twice) / n**2
    logit_variance = 1 + filler / V * D / n  # filler may be the right value, too
    empty = np.maximum(V - 1 - once - twice, 0)
    return filler, Contest(D, N, n, once, twice, empty, spread, logit_variance)


@takes_fields
def designed_exact_law(problem: Problem) -> Array:
    """The success integral with separate variances of the correct, the wrong and the empty logits.

    Paper: Eq. labels `eq:p-succ-exact`, `eqs-variance`; MQAR as the mean over slots with 2 N_f -> 2 N_f + 2 g.
        `num_heads` > 1 is MHA (Lem H.5, `lem:mha-recall`) as its own construction has it.
    Holds for: N <= D (nan elsewhere: N orthonormal rows of R^D do not exist).
    Departs: not from the print, whose Var(S~) = 1/N - 1/D is half of the right one (`designed_improved_law` has that).
        With M heads only the key noise of one value, 1/N -> 1/(M N) + (1 - 1/M)/D, and Var(S~) fall; the bulk noise
        n/(N D) stays, because a head carries only D/M of the value.
    """

    def at(t: Array, cell: Problem) -> Array:
        D, N, M = cell.D, cell.N, cell.M
        n_w, n_e = cell.N_f - 1, cell.V - cell.N_f
        key_noise = 1 / (M * N) + (1 - 1 / M) / D
        share = key_noise * N  # of the single head's
        var_S = share * (1 / N - 1 / D)
        with np.errstate(invalid="ignore"):
            sd_c = np.sqrt(var_S + (t - 1) / (N * D))[..., None]
            sd_w = np.sqrt(key_noise + (1 + var_S) / D + (t - 2) / (N * D))[..., None]
            sd_e = np.sqrt((1 + var_S) / D + (t - 1) / (N * D))[..., None]
            z = np.linspace(-8.5, 8.5, 341)
            y = 1 + sd_c * z
            log_p = n_w[..., None] * log_ndtr(y / sd_w) + n_e[..., None] * log_ndtr(y / sd_e)
            p = (np.exp(log_p - z**2 / 2) * ((z[1] - z[0]) / np.sqrt(2 * np.pi))).sum(-1)
        return np.where(N > D, np.nan, np.minimum(p, 1))  # the sum has rounding errors

    return mean_over_queries(problem, at)


_DESIGNED: Any = {"weights": "designed", "status": "approximate", "compared": MONTE_CARLO}
_HALF_NOISE: Any = {
    "reference": "Fig. 4 (c), heuristic",
    "models": ("mamba",),
    "holds": "full Mamba, trained long",
    "compared": FULL,
    "layers": "printed",
    "inverse": unified_inverse,
}
LAWS = [
    Law(
        "designed-improved",
        designed_improved_law,
        summary="exact noise of the designed weights: sphere tails, signal-noise correlation, all competitors",
        reference="ours; App. E.1",
        domain=Domain("2 <= N <= D", "N_f >= 2", "V > 4 N_f"),
        fewest_facts=2,
        vocab_per_fact=4,
        support="closest to Monte Carlo, without a fitted constant (results/theory)",
        **_DESIGNED,
    ),
    Law(
        "designed-exact",
        designed_exact_law,
        summary="success integral with separate variances, as printed",
        reference="eq:p-succ-exact, eqs-variance",
        domain=Domain("N <= D"),
        **_DESIGNED,
    ),
    Law(
        "designed-unified-mv",
        unified_law,
        summary=f"{PHI_OF_X} - m_V), a = 2 | 3",
        reference="Rem 4.3, app-eq:m-V",
        holds=NEAR_SQUARE,
        options={"weights": "designed", "level": "mv"},
        inverse=unified_inverse,
        **_DESIGNED,
    ),
    Law(
        "designed-unified",
        unified_law,
        summary=f"{PHI_OF_X} - sqrt(2 log V)), a = 2 | 3, as printed",
        reference="Rem 4.3",
        holds=NEAR_SQUARE,
        options={"weights": "designed"},
        inverse=unified_inverse,
        **_DESIGNED,
    ),
    Law(
        "designed",
        large_context_law,
        summary="mean over query slots of Phi(sqrt(N D / t) - sqrt(2 log V))",
        reference="Thm F.2",
        holds=ALL_SIZES,
        options={"weights": "designed"},
        **_DESIGNED,
    ),
    Law(
        "designed-printed",
        large_context_law,
        summary="the sum as printed, one term too many: may exceed 1",
        reference="Thm F.2",
        holds=ALL_SIZES,
        options={"weights": "designed", "printed": True},
        **_DESIGNED,
    ),
    Law(
        "full-unified-mv",
        unified_law,
        summary="unified-mv with half the noise, a = 1/2 | 5/8",
        support="the paper's heuristic; no law of the full model is established",
        options={"level": "mv", "noise_scale": 0.5},
        **_HALF_NOISE,
    ),
    Law(
        "full-unified",
        unified_law,
        summary="unified with half the noise, a = 1/2 | 5/8, sqrt(2 log V)",
        options={"noise_scale": 0.5},
        **_HALF_NOISE,
    ),
]
