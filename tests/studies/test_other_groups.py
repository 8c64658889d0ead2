"""Laws against numbers of other groups: the figures on the page follow from the published files."""

from pathlib import Path

import numpy as np
import pytest

from recallscope.studies.other_groups import FEW, GLA, ROUTED, errors, gated_linear_attention, routed_memories
from recallscope.studies.report import with_tables

PAGE = Path(__file__).resolve().parents[2] / "docs" / "OTHER_GROUPS.md"


def test_every_variant_of_routed_memories():
    measured = routed_memories()
    assert measured.accuracy.shape == (8, 9)
    found = {one.variant.name: one for one in errors(measured, ROUTED)}
    assert found["all entries, V"].mean == pytest.approx(0.0158, abs=5e-5)
    assert found["binomial, V"].mean == min(one.mean for one in found.values())
    few = {one.variant.name: one for one in errors(measured, ROUTED, largest_size=FEW)}
    assert few["binomial, V"].settings == 36
    assert few["binomial, V"].mean == pytest.approx(0.0111, abs=5e-5)


def test_gla_as_published_counts_neighbours_as_well():
    measured = gated_linear_attention()
    np.testing.assert_array_equal(measured.size.ravel(), [64, 128])
    found = [one.mean for one in errors(measured, GLA)]
    assert found[0] == min(found) == pytest.approx(0.0093, abs=5e-5)


def test_the_page_says_what_the_files_give():
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page, None) == page
    few = {one.variant.name: one.mean for one in errors(routed_memories(), ROUTED, FEW)}
    gla = {one.variant.name: one.mean for one in errors(gated_linear_attention(), GLA)}
    text = " ".join(page.split())
    for sentence in (
        f"with a mean absolute error of {few['all entries, V']:.3f}.**",
        f"binomial number of the facts brings it to {few['binomial, V']:.3f}.",
        f"error of {gla['facts and neighbours, V/2']:.3f}.** Counting only the facts gives {gla['facts, V/2']:.3f}.",
        f"using V for both gives {few['all entries, V']:.3f} and {gla['facts and neighbours, V']:.3f}",
        f"using V/2 for both {few['all entries, V/2']:.3f} and {gla['facts and neighbours, V/2']:.3f}",
    ):
        assert sentence in text
