"""The paper's recall laws, each in its printed form and, where that cannot be followed, in the form that was meant.

All take words and arrays (they broadcast) and return probabilities. x = 1/sigma is the signal-to-noise ratio of a
logit; b is the level of the largest of V noise logits: sqrt(2 log V) in print, m_V in the released code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr, ndtr

from recallscope.theory.extremes import sqrt_two_log, success_integral, two_moment_law, typical_max
from recallscope.theory.inputs import Array, LawTask, Letters, letters
from recallscope.theory.noise import Weights, noise_coeff, refined_denominator

Level = Literal["sqrt", "mv", "two-moment", "integral"]


def inv_sigma(
    *,
    vocab_size: ArrayLike,
    num_facts: ArrayLike,
    embed_dim: ArrayLike,
    state_dim: ArrayLike,
    task: LawTask = "mqar",
    length: ArrayLike | None = None,
    weights: Weights = "trained",
    noise_scale: float = 1.0,
) -> Array:
    """x = sqrt(N D / (a N_f + N)), the one variable onto which recall collapses.

    Paper: Rem 4.3 (`rem:practical-scaling-law`), Fig. 4 (`fig:scaling-laws-1d-dims`).
    """
    args = letters(
        vocab_size=vocab_size,
        num_facts=num_facts,
        embed_dim=embed_dim,
        state_dim=state_dim,
        task=task,
        length=length,
    )
    a = noise_scale * noise_coeff(args.N_f, args.L, task=task, weights=weights)
    return np.sqrt(args.N * args.D / (a * args.N_f + args.N))


def above_the_rest(x: Array, vocab_size: Array, level: Level) -> Array:
    """The chance that a logit of signal-to-noise x tops V - 1 others, for four ways to treat their maximum."""
    if level == "sqrt":
        return ndtr(x - sqrt_two_log(vocab_size))
    if level == "mv":
        return ndtr(x - typical_max(vocab_size))
    return two_moment_law(x, vocab_size - 1) if level == "two-moment" else success_integral(x, vocab_size - 1)


def unified_law(
    *,
    vocab_size: ArrayLike,
    num_facts: ArrayLike,
    embed_dim: ArrayLike,
    state_dim: ArrayLike,
    task: LawTask = "mqar",
    length: ArrayLike | None = None,
    weights: Weights = "trained",
    level: Level = "sqrt",
    noise_scale: float = 1.0,
    refined: bool = False,
) -> Array:
    """Phi(sqrt(N D / (a N_f + N)) - b), with a for task and weights; `noise_scale` = 1/2 is the paper's guess for
    full Mamba.

    Paper: Rem 4.3 (`rem:practical-scaling-law`, `app-eq:practical-success-prob`).   Holds for: N ~ D and moderate x.
    Departs: the self-noise term N (1/D of the variance) is not independent of the signal, so the ceiling
        p <= Phi(sqrt(D) - b) it implies is an artefact; and a 1/N term of the wrong facts is dropped, which matters
        for N << D.
    """
    args = letters(
        vocab_size=vocab_size,
        num_facts=num_facts,
        embed_dim=embed_dim,
        state_dim=state_dim,
        task=task,
        length=length,
    )
    if refined and task == "mqar":
        denominator = refined_denominator(args.N_f, args.N, args.L, weights=weights)
    else:
        denominator = noise_scale * noise_coeff(args.N_f, args.L, task=task, weights=weights) * args.N_f + args.N
    return above_the_rest(np.sqrt(args.N * args.D / denominator), args.V, level)


def large_context_law(
    *,
    vocab_size: ArrayLike,
    num_facts: ArrayLike,
    embed_dim: ArrayLike,
    state_dim: ArrayLike,
    task: LawTask = "mqar",
    length: ArrayLike | None = None,
    weights: Weights = "trained",
    level: Level = "sqrt",
    printed: bool = False,
) -> Array:
    """Mean over queries of Phi(sqrt(N D / n(t)) - b): n(t) = N_f/2 + t/4 noisy pairs for trained weights, t for
    designed.

    Paper: Thm 4.2, Eq. 15 (`thm:prob-scaling-law`, `eq:success-prob-ar-large-Nf`) and Thm F.2
        (`app-thm:designed-scaling-law`).   Holds for: N_f >> N, D and V >> 1.
    Departs: we average over the query slots t = 2 N_f + 2 g. As printed (`printed=True`) the sum over t = 2 N_f .. L
        has one term more than its divisor and tends to 33/32 for L = 64, N_f = 16: it is not a probability.
    """
    args = letters(
        vocab_size=vocab_size,
        num_facts=num_facts,
        embed_dim=embed_dim,
        state_dim=state_dim,
        task=task,
        length=length,
    )

    def at(t: Array, cell: Letters) -> Array:
        pairs = t if weights == "designed" else cell.N_f / 2 + t / 4
        return above_the_rest(np.sqrt(cell.N * cell.D / pairs), cell.V, level)

    if task == "ar":
        return at(2 * args.N_f, args)
    if printed:
        return _sum_over_positions(args, at, step=1, last=0, divisor=lambda c: c.L - 2 * c.N_f)
    return _sum_over_positions(args, at, step=2, last=-1, divisor=lambda c: c.G)


def designed_exact_law(
    *,
    vocab_size: ArrayLike,
    num_facts: ArrayLike,
    embed_dim: ArrayLike,
    state_dim: ArrayLike,
    task: LawTask = "mqar",
    length: ArrayLike | None = None,
    corrected: bool = False,
    num_heads: ArrayLike = 1,
) -> Array:
    """The success integral with separate variances of the correct, the wrong and the empty logits.

    Paper: Eq. labels `eq:p-succ-exact`, `eqs-variance`; MQAR as the mean over slots with 2 N_f -> 2 N_f + 2 g.
        `num_heads` > 1 is MHA (Lem H.5, `lem:mha-recall`) as its own construction has it.
    Holds for: N <= D (nan elsewhere: N orthonormal rows of R^D do not exist).
    Departs: `corrected` takes Var(S~) = 2 (D - N) / (N (D + 2)); the print is off by a factor 2, (1/N - 1/D). With M
        heads only the key noise of one value, 1/N -> 1/(M N) + (1 - 1/M)/D, and Var(S~) fall; the bulk noise n/(N D)
        stays, because a head carries only D/M of the value.
    """
    args = letters(
        vocab_size=vocab_size,
        num_facts=num_facts,
        embed_dim=embed_dim,
        state_dim=state_dim,
        task=task,
        length=length,
    )
    M = np.broadcast_to(np.asarray(num_heads, float), args.V.shape)

    def at(t: Array, cell: Letters, heads: Array) -> Array:
        V, N_f, D, N, _ = cell
        n_w, n_e = N_f - 1, V - N_f
        key_noise = 1 / (heads * N) + (1 - 1 / heads) / D
        share = key_noise * N  # of the single head's
        var_S = share * (2 * (D - N) / (N * (D + 2)) if corrected else 1 / N - 1 / D)
        with np.errstate(invalid="ignore"):
            sd_c = np.sqrt(var_S + (t - 1) / (N * D))[..., None]
            sd_w = np.sqrt(key_noise + (1 + var_S) / D + (t - 2) / (N * D))[..., None]
            sd_e = np.sqrt((1 + var_S) / D + (t - 1) / (N * D))[..., None]
            z = np.linspace(-8.5, 8.5, 341)
            y = 1 + sd_c * z
            log_p = n_w[..., None] * log_ndtr(y / sd_w) + n_e[..., None] * log_ndtr(y / sd_e)
            p = (np.exp(log_p - z**2 / 2) * ((z[1] - z[0]) / np.sqrt(2 * np.pi))).sum(-1)
        return np.where(N > D, np.nan, p)

    if task == "ar":
        return at(2 * args.N_f, args, M)
    return _sum_over_positions(args, at, step=2, last=-1, divisor=lambda c: c.G, extra=(M,))


def _sum_over_positions(
    args: Letters,
    at: Callable[..., Array],
    *,
    step: int,
    last: int,
    divisor: Callable[[Letters], Array],
    extra: tuple[Array, ...] = (),
) -> Array:
    """Sum at(t) over t = 2 N_f, 2 N_f + step, ... up to L + last, over the divisor; one sum per distinct (N_f, L)."""
    result = np.empty(args.V.shape)
    tasks = np.stack([args.N_f.ravel(), args.L.ravel()])
    for N_f, L in np.unique(tasks, axis=1).T:
        here = (args.N_f == N_f) & (args.L == L)
        cell = Letters(*(a[here] for a in args))
        more = tuple(a[here] for a in extra)
        positions = np.arange(2 * N_f, L + last + 1e-9, step)
        total = np.zeros(cell.V.shape)
        for t in positions:
            total += at(np.full(cell.V.shape, t), cell, *more)
        result[here] = total / divisor(cell)
    return result
