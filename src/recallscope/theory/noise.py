"""How much noise a query meets: the coefficient a of sigma² = (a N_f + N) / (N D), coarse and refined, for any L."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from recallscope.theory.problem import Array, LawTask

Weights = Literal["designed", "trained"]


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


def printed_refined_denominator(num_facts: ArrayLike, state_dim: ArrayLike) -> Array:
    """The right-hand side as printed, kept so that a test can show that it is not the left-hand side.

    Paper: proof of Rem 4.3 (`app-rem:practical-scaling-law`).
    """
    N_f, N = np.asarray(num_facts, float), np.asarray(state_dim, float)
    return 5 / 4 * N_f + N + np.sqrt((3 * N_f + 2 * N) * (N_f + N)) / 4
