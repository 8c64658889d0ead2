"""Laws of full Mamba: what its nonlinearities and its gate can add to the linear layer, and what training makes of it.

At a query (key q) the logit of value v' is <R, H>: H is the sum of the writes (Delta x̂) Bᵀ, and R = (P_outᵀ e_v' *
z_q) C_qᵀ with the gate z_q. If all R, or all useful parts of the writes, lie in r dimensions, the mean square of the
crosstalk is at least 1/r, as |tr M|² <= rank(M) |M|², and SNR² <= r / n. (Derived; that interferences add in power is
assumed.) Hence:

- SiLU, or a Delta that depends on the input, can switch a channel off by the kind of the previous token: (value, key)
  neighbours are no longer written, and the price of sharing is gone. r = N D, the law of a write gate, reached by
  either of the two (`full-nd`). Without a gate R stays in the D dimensions of P_out, and `expand` brings nothing.
- With a gate R spans all expand D channels, and with keys blind to the value r = N (expand D - N). One bit per key gets
  there: two banks of channels, Delta writes a fact into the bank of its key, the gate reads that of the query. A query
  hears half of the other facts, in (expand D - N) / 2 dimensions (`full-bank`): N (2 D - N) / n, which is the paper's
  a_full = a_linear / 2. (Derived for banks; trained models that found the bit are there, and not all find it.)
- In between, every key opens each channel with chance p, on or off: interference p² + (1 - p²) / R of that of open
  channels, self-noise 1 + (1/p - 1) / R, weight of a wrong fact p² + 3 (1 - p²) / (R D), R = expand - N/D, and the p
  that minimises self-noise and interference together (`full-mask`). It leaves out that the signal varies, 3 (1/p - 1)
  / (R D): independent masks are .03 to .11 below it. Trained masks are better ordered than independent ones, and the
  two errors cancel. An interpolation, not a theorem; beyond the capacity of two banks it is cut (`full-mamba`).

Filler behind a query is written like a fact. Norm, residual, skip and decay do not enter. No constant is fitted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from recallscope.theory.domain import FULL, Domain
from recallscope.theory.law import Law
from recallscope.theory.laws.matrix_memory import gated_law, tight_codes
from recallscope.theory.laws.sharing import (
    num_keys,
    pair_counts,
    recall_given_variances,
    sharing_codes,
    tight_variance,
)
from recallscope.theory.problem import Array, Problem, takes_fields

BANKS = 0.5  # chance that a fact is in the bank of the query


@takes_fields
def mask_law(problem: Problem, **nodes: int | None) -> Array:
    """Chance that a trained full Mamba answers a query rightly, if keys open and close channels independently.

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
    """Chance that a full Mamba with two banks of channels answers a query rightly.

    Paper: Fig. 4 (`fig:scaling-laws-1d-dims`), a_full = a_linear / 2.
    """
    V_v = problem.V - num_keys(problem.V)
    v_N = tight_variance(1 / np.minimum(problem.N, num_keys(problem.V)), num_keys(problem.V))
    rank = np.clip((np.asarray(problem.expand) * problem.D - problem.N) / 2, 1, problem.D)
    v_D = tight_variance(1 / rank, V_v)
    return recall_given_variances(problem, key_variance=v_N, value_variance=v_D, leak=0.0, theta=BANKS, **nodes)


@takes_fields
def full_mamba_law(problem: Problem, **nodes: int | None) -> Array:
    """Chance that a well-trained full Mamba answers a query rightly: by its masks, as far as banks hold.

    Where masks are to be sparse the interpolation is too good: it leaves out that the signal varies. Banks hold a
    little less again as N nears D, and so the law falls there, by .02 at most. It is no ceiling: training that starts
    with banks gets beyond it (results/mechanism/full/BANK_START.md).

    Paper: Fig. 4 (`fig:scaling-laws-1d-dims`), where a of the full model is half of the linear one's.
    """
    banks = bank_law(problem.replace(state_dim=np.minimum(problem.N, problem.D)), **nodes)
    return np.minimum(mask_law(problem, **nodes), banks)


_FULL: Any = {"models": ("mamba",), "reference": "ours; Fig. 4 (c)", "compared": FULL}
LAWS = [
    Law(
        "full-mask",
        mask_law,
        summary="on/off masks per key, between N D and N (2 D - N): an interpolation",
        holds="full Mamba at the paper's budget",
        support="trained full models that recall at all are .034 off on average, at most .17, by the mean of seeds",
        status="hypothesis",
        **_FULL,
    ),
    Law(
        "full-bank",
        bank_law,
        summary="one bit per key, two banks of channels: SNR² = N (2 D - N) / n",
        holds="N <= D; full Mamba that found the bit, expand >= 2",
        domain=Domain("N <= D"),
        support="trained full models that recall at all are .043 off on average, at most .21, mostly below it; "
        "memories with two banks .01, at most .02",
        status="approximate",
        **_FULL,
    ),
    Law(
        "full-mamba",
        full_mamba_law,
        summary="full-mask, and no more than two banks hold",
        holds="full Mamba as the best of a few seeds trains it",
        support="trained full models are .017 off on average, at most .08, by the best of seeds; by the mean of the "
        "seeds that recall at all .03, at most .15",
        status="hypothesis",
        **_FULL,
    ),
    Law(
        "full-nd",
        gated_law,
        summary="nothing but facts is written: SNR² = N D / n",
        holds="Mamba without a gate, with SiLU or input-dependent Delta, trained long",
        support="Mamba with SiLU alone, or with a selective Delta alone, is .01 off after 8000 steps or more "
        "(docs/COMPONENTS.md); after 2000 it is still far below (docs/ARCHITECTURE_COMPARISON.md)",
        status="approximate",
        **_FULL,
    ),
]
