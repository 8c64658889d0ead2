"""Laws against numbers of other groups: the figures on the page follow from the published files."""

import numpy as np
import pytest

from recallscope.studies.other_groups import FEW, GLA, ROUTED, errors, gated_linear_attention, routed_memories


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
