"""Records of schema 1, read as those of today.

Their counts are kept, and n_50, n_90, the verdict and the law's curve are estimated from them anew: schema 1 read n_50
off the law's curve whatever the shape of the data. Greedy decoding has no n_50, as its counts by context were not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from recallscope.measuring.checkpoints.capacity import find_crossing, law_shape, verdict
from recallscope.measuring.checkpoints.record import Point

RENAMED = {
    "asked": "queries",
    "right_per_context": "correct_per_context",
    "recall_of_all": "greedy_recall",
    "prior": "no_facts",
}
BOOTSTRAP = 3  # number of the stream of random numbers


def from_schema_1(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a record of schema 2."""
    points = [
        Point(**{RENAMED.get(name, name): value for name, value in point.items()}, greedy_per_context=None)
        for point in facts["points"]
    ]
    settings = dict(facts["settings"])
    rng = np.random.default_rng([settings["seed"], 0, BOOTSTRAP])
    recalls, says = verdict(points)
    last = points[-1]
    return dict(facts) | {
        "schema_version": 2,
        "settings": settings | {"chat": False, "candidates": len(facts["values"])},
        "words": "the tokenizer's vocabulary",
        "example": "",
        "chat_unused": False,
        "points": points,
        "recalls": recalls,
        "verdict": says,
        "n_50": find_crossing(points, "correct", 0.5, rng),
        "n_90": find_crossing(points, "correct", 0.9, rng),
        "greedy_n_50": None,
        "law_shape": law_shape(points, rng),
        "key_value_per_token": None,
        "bits_per_entry": facts["bits_per_entry"] if last.recurrent_entries and not last.key_value_entries else None,
        "cpu_seconds": None,
    }
