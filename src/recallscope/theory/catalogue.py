"""Every law by name: what it says, where it comes from, what it holds for. The commands, docs and web page read it
here."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from recallscope.theory.designed_improved import designed_improved_law, designed_lite_law
from recallscope.theory.inputs import Array, LawTask
from recallscope.theory.laws import designed_exact_law, large_context_law, unified_law
from recallscope.theory.noise import effective_state
from recallscope.theory.selective import selective_law, selective_max_law, trained_t1_law, trained_t2_law
from recallscope.theory.sharing import sharing_law

Weights = Literal["trained", "designed", "full"]


@dataclass(frozen=True, slots=True)
class Law:
    """One row of the catalogue; call it with the words of a task and a model."""

    name: str
    weights: Weights
    summary: str
    reference: str
    holds: str
    status: Literal["exact", "approximate", "hypothesis"]
    function: Callable[..., Array]
    layers: Literal["printed", "joint"] = "joint"
    monotone_in_state: bool = True
    fewest_facts: int = 1

    def __call__(
        self,
        *,
        vocab_size: ArrayLike,
        num_facts: ArrayLike,
        embed_dim: ArrayLike,
        state_dim: ArrayLike,
        task: LawTask = "mqar",
        length: ArrayLike | None = None,
        num_layers: ArrayLike = 1,
    ) -> Array:
        """Recall probability; Lambda layers count as one with the effective state of Thm 4.6."""
        if np.any(np.asarray(num_layers) != 1):
            state_dim = effective_state(
                np.asarray(state_dim, float),
                np.asarray(embed_dim, float),
                np.asarray(num_layers, float),
                hashes=self.layers,
            )
        return np.asarray(
            self.function(
                vocab_size=vocab_size,
                num_facts=num_facts,
                embed_dim=embed_dim,
                state_dim=state_dim,
                task=task,
                length=length,
            )
        )


_ALL_SIZES = "V >> 1, N_f >> N, D"
_UNIFIED = "N of the order of D, moderate x"

LAWS: tuple[Law, ...] = (
    Law(
        "trained-sharing",
        "trained",
        "keys and values share the D dimensions: SNR² = N (D - N/2) / n; no fitted constant",
        "ours; builds on Rem F.3",
        "one linear layer, D >= 8; compared with trained models in docs/REPRODUCTION.md",
        "approximate",
        sharing_law,
    ),
    Law(
        "trained-t3max",
        "trained",
        "running maximum of trained-t3 over smaller states, which a larger one can imitate",
        "ours",
        "L = 4 N_f",
        "hypothesis",
        selective_max_law,
        fewest_facts=2,
    ),
    Law(
        "trained-t3",
        "trained",
        "soft key-value selectivity, D_v = D - N (1 - r), tight-frame codes",
        "ours; Rem F.3",
        "L = 4 N_f",
        "hypothesis",
        selective_law,
        monotone_in_state=False,
        fewest_facts=2,
    ),
    Law(
        "trained-t4",
        "trained",
        "hard key-value split, D_v = D - N (pessimistic)",
        "ours; Rem F.3",
        "N < D",
        "hypothesis",
        partial(selective_law, share="hard"),
        monotone_in_state=False,
        fewest_facts=2,
    ),
    Law(
        "trained-t5",
        "trained",
        "selectivity at no cost, D_v = D (optimistic)",
        "ours; Rem F.3",
        "N << D",
        "hypothesis",
        partial(selective_law, share="none"),
        fewest_facts=2,
    ),
    Law(
        "trained-t2",
        "trained",
        "trained-t1 with the Welch dimensions of tight frames",
        "ours",
        "L = 4 N_f",
        "hypothesis",
        trained_t2_law,
    ),
    Law(
        "trained-t1",
        "trained",
        "exact integral, x² = N D / (n + N), mean over query slots",
        "Eq. label eq:p-succ-appx-large-Nf",
        "L = 4 N_f",
        "approximate",
        trained_t1_law,
    ),
    Law(
        "unified-mv",
        "trained",
        "Phi(sqrt(N D / (a N_f + N)) - m_V), a = 1 | 5/4: what the authors' code evaluates",
        "Rem 4.3, app-eq:m-V",
        _UNIFIED,
        "approximate",
        partial(unified_law, level="mv"),
        layers="printed",
    ),
    Law(
        "unified-p1",
        "trained",
        "the same x in the exact success integral",
        "Rem 4.3, eq:p-succ-appx-large-Nf",
        _UNIFIED,
        "approximate",
        partial(unified_law, level="integral"),
        layers="printed",
    ),
    Law(
        "unified-p2",
        "trained",
        "the same x, maximum by its two exact moments",
        "Rem 4.3",
        _UNIFIED,
        "approximate",
        partial(unified_law, level="two-moment"),
        layers="printed",
    ),
    Law(
        "unified",
        "trained",
        "Phi(sqrt(N D / (a N_f + N)) - sqrt(2 log V)), a = 1 | 5/4, as printed",
        "Rem 4.3, Thm 4.6",
        _UNIFIED,
        "approximate",
        unified_law,
        layers="printed",
    ),
    Law(
        "unified-refined",
        "trained",
        "unified with the refined denominator",
        "proof of Rem 4.3",
        _UNIFIED,
        "approximate",
        partial(unified_law, refined=True),
        layers="printed",
    ),
    Law(
        "trained",
        "trained",
        "mean over query slots of Phi(sqrt(N D / (N_f/2 + t/4)) - sqrt(2 log V))",
        "Thm 4.2, Eq. 15",
        _ALL_SIZES,
        "approximate",
        large_context_law,
        layers="printed",
    ),
    Law(
        "trained-printed",
        "trained",
        "the sum as printed, one term too many: may exceed 1",
        "Thm 4.2, Eq. 15",
        _ALL_SIZES,
        "approximate",
        partial(large_context_law, printed=True),
        layers="printed",
    ),
    Law(
        "designed-improved",
        "designed",
        "exact noise of the designed weights: sphere tails, signal-noise correlation, all competitors",
        "ours; App. E.1",
        "2 <= N <= D, N_f >= 2, V > 4 N_f",
        "approximate",
        designed_improved_law,
        fewest_facts=2,
    ),
    Law(
        "designed-lite",
        "designed",
        "designed-improved as one integral",
        "ours; App. E.1",
        "2 <= N <= D, N_f >= 2, V > 4 N_f",
        "approximate",
        designed_lite_law,
        fewest_facts=2,
    ),
    Law(
        "designed-exact-corrected",
        "designed",
        "designed-exact with the right variance of the signal",
        "eq:p-succ-exact",
        "N <= D",
        "approximate",
        partial(designed_exact_law, corrected=True),
    ),
    Law(
        "designed-exact",
        "designed",
        "success integral with separate variances, as printed",
        "eq:p-succ-exact, eqs-variance",
        "N <= D",
        "approximate",
        designed_exact_law,
    ),
    Law(
        "designed-unified-mv",
        "designed",
        "Phi(sqrt(N D / (a N_f + N)) - m_V), a = 2 | 3",
        "Rem 4.3, app-eq:m-V",
        _UNIFIED,
        "approximate",
        partial(unified_law, weights="designed", level="mv"),
    ),
    Law(
        "designed-unified",
        "designed",
        "Phi(sqrt(N D / (a N_f + N)) - sqrt(2 log V)), a = 2 | 3, as printed",
        "Rem 4.3",
        _UNIFIED,
        "approximate",
        partial(unified_law, weights="designed"),
    ),
    Law(
        "designed",
        "designed",
        "mean over query slots of Phi(sqrt(N D / t) - sqrt(2 log V))",
        "Thm F.2",
        _ALL_SIZES,
        "approximate",
        partial(large_context_law, weights="designed"),
    ),
    Law(
        "designed-printed",
        "designed",
        "the sum as printed, one term too many: may exceed 1",
        "Thm F.2",
        _ALL_SIZES,
        "approximate",
        partial(large_context_law, weights="designed", printed=True),
    ),
    Law(
        "full-unified-mv",
        "full",
        "unified-mv with half the noise, a = 1/2 | 5/8",
        "Fig. 4 (c), heuristic",
        "full Mamba, trained long",
        "hypothesis",
        partial(unified_law, level="mv", noise_scale=0.5),
        layers="printed",
    ),
    Law(
        "full-unified",
        "full",
        "unified with half the noise, a = 1/2 | 5/8, sqrt(2 log V)",
        "Fig. 4 (c), heuristic",
        "full Mamba, trained long",
        "hypothesis",
        partial(unified_law, noise_scale=0.5),
        layers="printed",
    ),
)
BY_NAME: dict[str, Law] = {law.name: law for law in LAWS}

RECOMMENDED: dict[Weights, tuple[str, str]] = {
    "trained": (
        "trained-sharing",
        "closest to trained linear models, without a fitted constant (docs/REPRODUCTION.md)",
    ),
    "designed": ("designed-improved", "closest to Monte Carlo, without a fitted constant (results/theory)"),
    "full": ("full-unified-mv", "the paper's heuristic; no law of the full model is established"),
}


def find_law(name: str) -> Law:
    """The law of that name, or an error that offers the nearest ones."""
    if name in BY_NAME:
        return BY_NAME[name]
    near = difflib.get_close_matches(name, BY_NAME, n=3, cutoff=0.4)
    hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(BY_NAME)}."
    raise ValueError(f"law={name!r} is not in the catalogue of {len(BY_NAME)} laws. {hint}")


def laws_for(weights: Weights) -> list[Law]:
    """The catalogue's laws for one kind of weights, the recommended one first."""
    first = RECOMMENDED[weights][0]
    return sorted((law for law in LAWS if law.weights == weights), key=lambda law: law.name != first)
