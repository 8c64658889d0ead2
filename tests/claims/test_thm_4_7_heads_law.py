"""Thm 4.7: p_MQA = p_MKA <= p_single = p_MVA <= p_MHA."""

import numpy as np
import pytest

from recallscope.theory.law import find_law
from recallscope.theory.laws.designed import designed_exact_law
from recallscope.theory.reduction import head_bounds

FIELDS = {"vocab_size": 512, "num_facts": 16}


@pytest.mark.parametrize("name", ["unified", "unified-mv", "trained-sharing"])
def test_order_of_the_patterns(name):
    law = find_law(name)

    def p(side):
        return float(law(**FIELDS, embed_dim=side.embed_dim, state_dim=side.state_dim))

    bounds = {pattern: head_bounds(pattern, 60, 6, 3) for pattern in ("MQA", "MKA", "MVA", "MHA")}
    single = float(law(**FIELDS, embed_dim=60, state_dim=6))
    for pattern in ("MQA", "MKA", "MVA"):
        assert p(bounds[pattern].lower) == p(bounds[pattern].upper)
    assert p(bounds["MQA"].lower) == p(bounds["MKA"].lower) < single == p(bounds["MVA"].lower)
    assert single == p(bounds["MHA"].lower) < p(bounds["MHA"].upper)


@pytest.mark.parametrize("pattern", ["MQA", "MKA", "MVA", "MHA"])
def test_the_bounds_are_laws_of_the_catalogue(pattern):
    """A law for one head answers for many by the lower bound; the unified law has entries for both bounds."""
    fields = FIELDS | {"embed_dim": 60, "state_dim": 6, "num_heads": 3, "head_pattern": pattern}
    bounds = head_bounds(pattern, 60, 6, 3)
    lower, upper = (find_law("unified")(**FIELDS, **side._asdict()) for side in bounds)
    assert find_law("unified-heads-lower")(**fields) == find_law("unified")(**fields) == lower
    assert find_law("unified-heads-upper")(**fields) == upper


def test_one_head_is_one_head():
    for pattern in ("MQA", "MKA", "MVA", "MHA"):
        bounds = head_bounds(pattern, 60, 6, 1)
        assert bounds.lower == bounds.upper == (60, 6)


def test_mha_as_its_proof_builds_it_does_not_reach_the_state_m_n():
    """Departs: Monte Carlo of that construction gave 0.562 (one head), 0.720 (MHA), 0.995 (one head with state M N)."""
    cell = FIELDS | {"embed_dim": 64, "task": "ar"}
    single, mha = designed_exact_law(**cell, state_dim=8), designed_exact_law(**cell, state_dim=8, num_heads=4)
    claimed = designed_exact_law(**cell, state_dim=32)
    assert single < mha < claimed - 0.2
    np.testing.assert_allclose(single, 0.562, atol=0.02)


def test_unknown_patterns_are_refused():
    with pytest.raises(ValueError, match="MHA, MQA, MKA and MVA"):
        head_bounds("GQA", 60, 6, 2)
