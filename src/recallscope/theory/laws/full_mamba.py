"""Laws of full Mamba: what its nonlinearities and its gate can add to the linear layer, and what training makes of it.

At a query (key q) the logit of value v' is <R, H>: H is the sum of the writes (Delta x̂) Bᵀ, and R = (P_outᵀ e_v' *
z_q) C_qᵀ with the gate z_q. If all R, or all useful parts of the writes, lie in r dimensions, the mean square of the
crosstalk is at least 1/r, as |tr M|² <= rank(M) |M|², and SNR² <= r / n. (Derived; that interferences add in power is
assumed.) Hence:

- SiLU, or a Delta that depends on the input, can switch a channel off by the kind of the previous token: (value, key)
  neighbours are no longer written, and the price of sharing is gone. r = N D, the law of a write gate, reached by
  either of the two (`full-nd`). Without a gate R stays in the D dimensions of P_out, and `expand` brings nothing.
- With a gate R spans all expand D channels, and with keys blind to the value r = N (expand D - N). Two banks of
  channels reach it, with each key assigned to one: Delta writes a fact into its key's bank, and the gate reads the bank
  of the query. Half of the other facts interfere, in (expand D - N) / 2 dimensions (`full-bank`): N (2 D - N) / n, the
  paper's a_full = a_linear / 2. (Derived for banks, which not all trained models find.)
- In between, every key opens each channel with chance p, on or off: interference p² + (1 - p²) / R of that of open
  channels, self-noise 1 + (1/p - 1) / R, weight of a wrong fact p² + 3 (1 - p²) / (R D), R = expand - N/D, and the p
  that minimises self-noise and interference together (`full-mask`). It leaves out that the signal varies, 3 (1/p - 1)
  / (R D): independent masks are 0.03 to 0.11 below it. Trained masks are better ordered than independent ones, and the
  two errors cancel. An interpolation, not a theorem; beyond the capacity of two banks it is cut (`full-mamba`).

Filler behind a query is written like a fact. Norm, residual, skip and decay do not enter. No constant is fitted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from recallscope.theory.domain import FULL, Domain
from recallscope.theory.law import Law
from recallscope.theory.laws.matrix_memory import gated_law, tight_codes
from recallscope.theory.laws.sharing import num_keys, pair_counts, recall_given_variances, sharing_codes, tight_variance
from recallscope.theory.problem import Array, Problem, takes_fields

BANKS = 0.5  # chance that a fact is in the bank of the query


@takes_fields
def mask_law(problem: Problem, **nodes: int | None) -> Array:
    """Probability that a trained full Mamba answers a query correctly, if keys open and close channels independently.

    Paper: Fig. 4 (`fig:scaling-laws-1d-dims`), where a of the full model is half of the linear one's.
    Departs: half of a is the end of a range; what training reaches lies between no mask and two banks.
    """
    codes = sharing_codes(problem)
    N_e, v_N, v_0 = codes.rank, codes.key_variance, tight_codes(problem)[1]
    R = np.maximum(1, np.asarray(problem.expand) - N_e / problem.D)
    others = pair_counts(problem, slot=(problem.G - 1) / 2).kv - 1
    with np.errstate(divide="ignore"):
        p = np.minimum(1, (2 * (R - 1) * others * v_N) ** (-1 / 3))
    readout, noise = p**2 + (1 - p**2) / R, 1 + (1 / p - 1) / R
    own = v_N * (p**2 + 3 * (1 - p**2) / (R * problem.D))
    variances = {"key_variance": v_N * readout / noise, "value_variance": v_0 * noise, "weight_variance": own}
    return recall_given_variances(problem, **variances, leak=0.0, **nodes)


@takes_fields
def bank_law(problem: Problem, **nodes: int | None) -> Array:
    """Probability that a full Mamba with two banks of channels answers a query correctly.

    Paper: Fig. 4 (`fig:scaling-laws-1d-dims`), a_full = a_linear / 2.
    """
    V_v = problem.V - num_keys(problem.V)
    v_N = tight_variance(1 / np.minimum(problem.N, num_keys(problem.V)), num_keys(problem.V))
    rank = np.clip((np.asarray(problem.expand) * problem.D - problem.N) / 2, 1, problem.D)
    v_D = tight_variance(1 / rank, V_v)
    return recall_given_variances(problem, key_variance=v_N, value_variance=v_D, leak=0.0, theta=BANKS, **nodes)


@takes_fields
def full_mamba_law(problem: Problem, **nodes: int | None) -> Array:
    """Accuracy of the best of a few seeds of a full Mamba: `full-mask`, capped at the two-bank law.

    For sparse masks the interpolation is too optimistic, because it ignores that the signal varies. The bank law
    decreases slightly as N approaches D, and so does this one, by at most 0.02. It is not a ceiling: training that
    starts from two banks exceeds it (results/mechanism/full/BANK_START.md).

    Paper: Fig. 4 (`fig:scaling-laws-1d-dims`), where a of the full model is half of the linear one's.
    """
    banks = bank_law(problem.replace(state_dim=np.minimum(problem.N, problem.D)), **nodes)
    return np.minimum(mask_law(problem, **nodes), banks)


_FULL: Any = {"models": ("mamba",), "reference": "ours; Fig. 4 (c)", "compared": FULL}
LAWS = [
    Law(
        "full-mask",
        mask_law,
        summary="random on/off masks per key: an interpolation between N D and N (2 D - N)",
        holds="full Mamba at the paper's budget",
        support="mean absolute error 0.034 (max 0.17) for the mean over seeds of full models that learned",
        status="hypothesis",
        **_FULL,
    ),
    Law(
        "full-bank",
        bank_law,
        summary="two banks of channels, each key assigned to one: SNR² = N (2 D - N) / n",
        holds="N <= D; full Mamba that found two banks, expand >= 2",
        domain=Domain("N <= D"),
        support="mean absolute error 0.043 (max 0.21) for full models that learned, which are mostly below it; "
        "0.01 (max 0.02) for memories built with two banks",
        status="approximate",
        **_FULL,
    ),
    Law(
        "full-mamba",
        full_mamba_law,
        summary="full-mask, capped at full-bank",
        holds="the best of a few seeds of a full Mamba",
        support="mean absolute error 0.017 (max 0.08) for the best of seeds; 0.03 (max 0.15) for the mean over seeds "
        "that learned",
        status="hypothesis",
        **_FULL,
    ),
    Law(
        "full-nd",
        gated_law,
        summary="only facts are written: SNR² = N D / n",
        holds="Mamba without a gate, with SiLU or input-dependent Delta, trained long",
        support="mean absolute error 0.01 for Mamba with SiLU or a selective Delta after 8000 steps; after 2000 steps "
        "such models are still far below the law",
        status="approximate",
        **_FULL,
    ),
]
