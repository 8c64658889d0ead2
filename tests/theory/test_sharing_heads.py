"""Heads by counting channels: limits that must hold whatever the numbers, and what Thm 4.7 gets right."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recallscope.theory.laws.heads import sharing_heads_law
from recallscope.theory.laws.sharing import sharing_codes, sharing_law

TASK: dict[str, Any] = {"vocab_size": 512, "num_facts": 16}


def heads(pattern: Any, M: float, **fields: Any) -> float:
    return float(
        sharing_heads_law(head_pattern=pattern, num_heads=M, **(TASK | {"embed_dim": 60, "state_dim": 4} | fields))
    )


def single(D: float, N: float) -> float:
    return float(sharing_law(**TASK, embed_dim=D, state_dim=N))


@pytest.mark.parametrize("pattern", ["MHA", "MQA", "MKA", "MVA"])
def test_one_head_is_one_head(pattern: str) -> None:
    assert heads(pattern, 1) == single(60, 4)


@pytest.mark.parametrize("M", [2, 3, 6])
def test_shared_keys_and_queries_make_one_head_of_many(M: int) -> None:
    assert heads("MVA", M) == single(60, 4)


def test_idle_channels_pay_for_the_first_split() -> None:
    """With 2 D channels two heads lose nothing by sharing values, and hold all values twice by not sharing."""
    assert heads("MQA", 2) == heads("MKA", 2) == single(60, 4)
    assert heads("MHA", 2) == single(60, 8)
    assert heads("MQA", 2, expand=1) < heads("MQA", 2)
    assert single(60, 4) < heads("MHA", 2, expand=1) < single(60, 8)  # slices err apart, and nothing more
    assert single(60, 8) < heads("MHA", 3) < heads("MHA", 6) < single(60, 24)
    assert heads("MHA", 4, expand=4) == single(60, 16)


@settings(max_examples=30, deadline=None)
@given(
    D=st.integers(8, 80),
    N=st.integers(2, 16),
    M=st.integers(1, 12),
    expand=st.integers(1, 4),
    V=st.sampled_from([128, 512]),
)
def test_the_order_of_the_patterns_is_that_of_the_theorem(D: int, N: int, M: int, expand: int, V: int) -> None:
    """MQA = MKA <= single = MVA <= MHA, to the 1e-3 by which the law itself may step the wrong way."""
    fields = {"embed_dim": D, "state_dim": min(N, D), "expand": expand, "vocab_size": V}
    MQA, MKA, MVA, MHA = (heads(pattern, M, **fields) for pattern in ("MQA", "MKA", "MVA", "MHA"))
    assert MQA == MKA
    assert MQA <= MVA + 2e-3
    assert MVA <= MHA + 2e-3


def test_scarce_channels_keep_clear_of_the_keys() -> None:
    """With P <= D - N_e channels values share nothing with the keys: variance about 1/P, no leak."""
    codes = sharing_codes(**TASK, embed_dim=60, state_dim=8, value_rank=20)
    assert float(codes.share) == float(codes.leak) == 0
    assert float(codes.value_variance) == pytest.approx((1 / 20 - 1 / 255) * 255 / 254)
    some = sharing_codes(**TASK, embed_dim=60, state_dim=8, value_rank=56)  # 4 of the 8 key dimensions are needed
    full = sharing_codes(**TASK, embed_dim=60, state_dim=8)
    assert 0 < float(some.share) < float(full.share)
    assert float(some.value_variance) > float(full.value_variance)


def test_enough_channels_change_nothing() -> None:
    fields = {**TASK, "embed_dim": np.array([16, 60]), "state_dim": np.array([16, 8])}
    for free, held in zip(sharing_codes(**fields), sharing_codes(**fields, value_rank=60), strict=True):
        np.testing.assert_array_equal(free, held)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="the patterns are MHA, MQA, MKA and MVA"):
        heads("GQA", 2)
    with pytest.raises(ValueError, match="at least one head"):
        heads("MHA", 0)
