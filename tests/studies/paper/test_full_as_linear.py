"""Effective dimensions: a factor that was put in is found again, by the rule it was put in by."""

from __future__ import annotations

import pytest
from pandas import DataFrame

from recallscope.analysis.table import as_table
from recallscope.studies.dn_parts import effective_dimensions, scaled_errors
from recallscope.theory.laws.sharing import sharing_law


def cells(in_D: float, in_N: float) -> DataFrame:
    """A full model that is a linear one with (in_D D, in_N N)."""
    fields = {"vocab_size": 512, "num_facts": 16, "length": 64}
    return as_table(
        {
            **fields, "embed_dim": D, "state_dim": N,
            "test_accuracy": float(
                sharing_law(vocab_size=512, num_facts=16, embed_dim=in_D * D, state_dim=in_N * N, length=64)
            ),
        }
        for D in (16, 32, 48)
        for N in (4, 8, 16)
    )  # fmt: skip


@pytest.mark.parametrize(
    ("in_D", "in_N", "rule"), [(1.3, 1.3, "(c D, c N)"), (1.3, 1.0, "(c D, N)"), (1.0, 1.7, "(D, c N)")]
)
def test_the_rule_and_its_factor_are_found_on_half_the_cells(in_D: float, in_N: float, rule: str) -> None:
    found = effective_dimensions(cells(in_D, in_N))
    best = found.rules[0]
    assert best.rule == rule
    assert best.factor == pytest.approx(max(in_D, in_N), abs=5e-3)  # the quick form of the law is good to 1e-3
    assert best.error_checked < 1e-3 < min(found.unscaled)
    assert all(other.error_checked > 5e-3 for other in found.rules[1:])


def test_errors_are_measured_less_predicted() -> None:
    assert abs(scaled_errors("(c D, c N)", 1.3, cells(1.3, 1.3))).max() == 0
    assert (scaled_errors("(c D, c N)", 1.0, cells(1.3, 1.3)) > 0).all()


def test_too_few_cells_are_refused() -> None:
    with pytest.raises(ValueError, match="at least two"):
        effective_dimensions(cells(1.0, 1.0)[:2])
