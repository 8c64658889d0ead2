"""What a trained model may reach that stores facts only: selectivity, and what it costs in dimensions.

A selective model keeps keys and values in different directions, so that only (key, value) pairs leave noise
(Rem F.3): about N_f - 1 + g/2 of them at query slot g, and only the V/2 values compete. Three questions separate the
laws here: is the noise Gaussian or that of unit vectors; are the codes random or tight frames; and how many of the D
dimensions are left to the values once keys have taken theirs.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from recallscope.theory.domain import Domain
from recallscope.theory.extremes import success_integral
from recallscope.theory.law import law
from recallscope.theory.laws.compared import TRAINED
from recallscope.theory.laws.contest import SATURATED, Contest, check_keys, top_probability
from recallscope.theory.problem import Array, Problem
from recallscope.theory.quadrature import slot_rule

NamedShare = Literal["soft", "hard", "none"]
Share = float | NamedShare

SLOT_NODES = 5
LEAST_DIM = 1.25  # two opposite codes already crowd one dimension
MANY = 1e6  # a Welch dimension this large leaves no noise
CELLS = 4096  # per pass of the Gaussian laws: 301 nodes each
# states a larger one may imitate: all of the first 128, then steps of 4 %
STATES = np.unique(np.concatenate([np.arange(1, 129), np.geomspace(128, 2**30, 408).round()]))


def welch_dim(dim: ArrayLike, count: ArrayLike) -> Array:
    """d (n-1) / (n-d): the dimension in which random codes are as uncorrelated as n tight-frame codes are in d.

    n unit vectors of R^d have a mean squared inner product of at least (n-d) / (d (n-1)), Welch's bound, reached by
    tight frames; random ones have 1/d. Infinite for d >= n, where codes can be orthogonal.
    """
    d, n = np.broadcast_arrays(np.asarray(dim, float), np.asarray(count, float))
    if not (np.all(d > 0) and np.all(n > 1)):
        raise ValueError(f"welch_dim(dim={dim}, count={count}): needs dim > 0 and at least two codes, count > 1.")
    with np.errstate(divide="ignore"):
        return np.where(d < n, d * (n - 1) / np.where(d < n, n - d, 1), np.inf)


_trained = partial(law, compared=TRAINED)
_ours = partial(_trained, reference="ours; Rem F.3", status="hypothesis", fewest_facts=2)
_SHORTEST = Domain("L = 4 N_f")


@_ours(
    "trained-t3max",
    "running maximum of trained-t3 over smaller states, which a larger one can imitate",
    reference="ours",
    domain=_SHORTEST,
)
def selective_max_law(problem: Problem) -> Array:
    """The best `selective_law` over all states n <= N: a larger state can imitate a smaller one.

    Paper: builds on Rem F.3 (`app-rem:key-value-selectivity`).   Holds for: L = 4 N_f. So recall never falls with N;
        beyond n = 128 the smaller states are tried in steps of 4 %.
    """
    _check(problem)
    own = _selective(problem).ravel()
    V, N_f, D, N = (a.ravel() for a in (problem.V, problem.N_f, problem.D, problem.N))
    N = np.minimum(N, D)
    cells, which = np.unique(np.stack([V, N_f, D]), axis=1, return_inverse=True)
    which = np.ravel(which)
    for k, (V_k, N_f_k, D_k) in enumerate(cells.T):
        here = which == k
        states = STATES[N[here].max() >= STATES]
        cell = Problem(task=problem.task, vocab_size=V_k, num_facts=N_f_k, embed_dim=D_k, state_dim=states)
        best = np.maximum.accumulate(_selective(cell))
        own[here] = np.maximum(own[here], best[np.searchsorted(states, N[here], side="right") - 1])
    return own.reshape(problem.shape)


@_ours("trained-t5", "selectivity at no cost, D_v = D (optimistic)", holds="N << D", options={"share": "none"})
@_ours(
    "trained-t4",
    "hard key-value split, D_v = D - N (pessimistic)",
    domain=Domain("N < D"),
    options={"share": "hard"},
)
@_ours(
    "trained-t3",
    "soft key-value selectivity, D_v = D - N (1 - r), tight-frame codes",
    domain=_SHORTEST,
)
def selective_law(problem: Problem, *, share: Share = "soft", welch: bool = True) -> Array:
    """Recall of a key-value selective model, with the noise of unit vectors; keys cost the values `share` N dimensions.

    `share`: D_v = D - share N. "hard" is 1: values live outside the N key dimensions. "none" is 0: selectivity for
    free. "soft" lets values use the key dimensions in part, as leaks allow: noise n_tot y²/N + n_kv (1-y)²/(D-N) is
    least at share = 1 - r, r = n_kv/n_tot the part of all pairs that are (key, value): 1/2 for AR, falling to 3/8.
    `welch`: tight-frame codes instead of random ones.

    Paper: builds on Rem F.3 (`app-rem:key-value-selectivity`); takes the place of Thm 4.2 (`thm:prob-scaling-law`).
    Holds for: L = 4 N_f, one linear layer. States beyond D count as D: the hash F E has rank D. Proposed, and checked
        on explicit weights only, to .03 (test_rem_f_3_selectivity); trained models do better near N = D.
    Departs: the paper's N D / N_f takes key-value orthogonality for free and drops the 1/N noise of wrong facts.
    """
    _check(problem)
    if isinstance(share, str):
        if share not in get_args(NamedShare):
            raise ValueError(f"share={share!r}: use 'soft', 'hard', 'none', or a number from 0 (none) to 1 (hard).")
    elif not 0 <= share <= 1:
        raise ValueError(
            f"share={share}: keys take between none (0) and all (1) of their N dimensions. Use 0 <= share <= 1."
        )
    return _selective(problem, share, welch)


@_trained("trained-t2", "trained-t1 with the Welch dimensions of tight frames", "ours", domain=_SHORTEST)
def trained_t2_law(problem: Problem) -> Array:
    """`trained_t1_law` with tight-frame codes: N and D replaced by their Welch dimensions among V/2 codes.

    Paper: as `trained_t1_law` (`thm:prob-scaling-law`).   Holds for: L = 4 N_f.
    Departs: trained codes are not random. So p = 1 once N or D reaches V/2, in line with Thm 3.1
        (`thm:non-compressive-recall`).
    """
    _check(problem)
    V_v, D = problem.V / 2, problem.D
    return _gaussian(problem, welch_dim(np.minimum(problem.N, D), V_v), welch_dim(D, V_v))


@_trained(
    "trained-t1",
    "exact integral, x² = N D / (n + N), mean over query slots",
    "Eq. label eq:p-succ-appx-large-Nf",
    status="approximate",
    domain=_SHORTEST,
)
def trained_t1_law(problem: Problem) -> Array:
    """Selectivity at no cost, Gaussian noise: E[Phi(Z + x)^(V/2 - 1)], x² = N D / (n + N), mean over query slots.

    Paper: Thm 4.2 (`thm:prob-scaling-law`) and Rem 4.3 (`rem:practical-scaling-law`) with the success integral of
        Eq. label `eq:p-succ-appx-large-Nf` kept.   Holds for: L = 4 N_f; N > D counts as N = D.
    Departs: n = N_f - 1 + g/2 noise pairs (the right one is no noise), averaged over slots g = 0 .. N_f - 1; only
        values compete; the maximum is not approximated.
    """
    _check(problem)
    return _gaussian(problem, np.minimum(problem.N, problem.D), problem.D)


def _check(problem: Problem) -> None:
    """What these laws ask beyond a sound problem: enough keys, and L = 4 N_f."""
    check_keys(problem)
    if problem.task == "mqar" and np.any(problem.L != 4 * problem.N_f):
        raise ValueError(
            f"length={np.max(problem.L):g}: the selective laws count pairs for L = 4 num_facts, where every second "
            f"token of the query section is a query (Thm 4.2). Leave it out, or use the law trained-sharing, made for "
            f"any length."
        )


def _gaussian(problem: Problem, N: Array, D: Array) -> Array:
    """Mean over slots of the success integral at x² = N D / (n + N); 1 where N or D is infinite."""
    V, N_f, G, N, D = (a.ravel() for a in (problem.V, problem.N_f, problem.G, N, D))
    p = np.empty(V.shape)
    # every slot up to 64 of them; the discrete Gauss rule has long converged above
    g, weight = slot_rule(G, 1 if problem.task == "ar" or not V.size else int(min(G.max(), 64)))
    for start in range(0, V.size, CELLS):
        part = slice(start, start + CELLS)
        p[part] = 0
        for g_k, weight_k in zip(g[part].T, weight[part].T, strict=True):
            n = N_f[part] - 1 + g_k / 2
            with np.errstate(invalid="ignore"):
                x = np.sqrt(D[part] / (n / N[part] + 1))
            p[part] += weight_k * success_integral(x, V[part] / 2 - 1)
    return np.where(np.isinf(N) | np.isinf(D), 1.0, np.clip(p, 0, 1)).reshape(problem.shape)


def _selective(problem: Problem, share: Share = "soft", welch: bool = True) -> Array:
    V, N_f, D, N, G = (a.reshape(-1, 1) for a in (problem.V, problem.N_f, problem.D, problem.N, problem.G))
    g, weight = slot_rule(G[:, 0], 1 if problem.task == "ar" else SLOT_NODES)
    V_v, N = V / 2, np.minimum(N, D)
    if share == "soft":
        share_g = 1 - (N_f + g / 2) / (2 * N_f + 2 * g)
    else:
        share_g = np.full(g.shape, float(share == "hard") if isinstance(share, str) else share)
    room = D - share_g * N
    N_code, D_code = N + 0 * g, np.maximum(room, LEAST_DIM)
    if welch:
        N_code, D_code = (welch_dim(np.minimum(dim, V_v), V_v) for dim in (N_code, D_code))
    n = N_f - 1 + g / 2
    once = n - g / 2 * N_f / V_v  # filler that repeats a value adds no competitor
    N_star = np.minimum(N_code, MANY)
    # orthogonal values leave no noise, unless N = 1 makes wrong facts weigh as much as the right one
    noisy = (n > 0) & (N_code < MANY) & ((D_code < MANY) | (N < 2)) & (room > 0)
    n_safe = np.where(noisy, n, 1)
    D_star = np.clip(D_code, LEAST_DIM, SATURATED * n_safe)
    # an asked key weighs its own fact and the filler after it at once; repeated values add a cross term
    spread = (2 * (N_star - 1) / (N_star + 2) * (N_f - 1 + 1.5 * g) + g / 4) / n_safe**2
    contest = Contest(
        D_star, N_star, N_star, n_safe, once, 0 * g, np.maximum(V_v - 1 - once, 0), np.maximum(spread, 0), 1 + 0 * g
    )
    p = np.where(room > 0, 1.0, 1 / V_v)  # no noise, or no room for values at all
    index = np.nonzero(noisy)
    p[index] = top_probability(Contest(*(np.broadcast_to(a, g.shape)[index] for a in contest)), signal=False)
    return np.clip((weight * p).sum(-1), 1 / V_v[:, 0], 1).reshape(problem.shape)
