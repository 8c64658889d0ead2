"""The paper's guess for trained full Mamba: the laws of the linear model with half the noise."""

from __future__ import annotations

from typing import Any

from recallscope.theory.law import law
from recallscope.theory.laws.paper import unified_inverse, unified_law

_HALF: dict[str, Any] = {
    "weights": "full",
    "reference": "Fig. 4 (c), heuristic",
    "holds": "full Mamba, trained long",
    "status": "hypothesis",
    "layers": "printed",
    "inverse": unified_inverse,
}

law(
    name="full-unified-mv",
    summary="unified-mv with half the noise, a = 1/2 | 5/8",
    options={"level": "mv", "noise_scale": 0.5},
    **_HALF,
)(unified_law)
law(
    name="full-unified",
    summary="unified with half the noise, a = 1/2 | 5/8, sqrt(2 log V)",
    options={"noise_scale": 0.5},
    **_HALF,
)(unified_law)
